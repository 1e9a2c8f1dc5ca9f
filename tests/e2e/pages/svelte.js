// @ai-sdk/svelte over the README's wiring.
import { mount as render, unmount } from 'svelte'
import { openChat } from '../../../examples/clients/rejoin.js'
import Seen from './Seen.svelte'
import { deeds, watched, whenAnswered } from './page.js'

export function mount(root, { origin, id }) {
  const page = watched()
  const { chat, opened, stop, leave } = openChat(origin, id, { sendAutomaticallyWhen: whenAnswered })
  const seen = render(Seen, { target: root, props: { chat, page } })
  return { ...page, ...deeds(() => chat, stop), closeSocket: () => chat.stop(), opened, unmount: () => (void unmount(seen), leave()) }
}
