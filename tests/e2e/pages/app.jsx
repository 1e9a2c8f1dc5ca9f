// The README's page as an app, for a browser: `?server=&id=`.
import { createRoot } from 'react-dom/client'
import { ChatPage } from '../../../examples/clients/page.jsx'

const query = new URLSearchParams(location.search)
createRoot(document.getElementById('root')).render(<ChatPage origin={query.get('server')} id={query.get('id')} />)
