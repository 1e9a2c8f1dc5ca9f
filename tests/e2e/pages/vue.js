// @ai-sdk/vue over the README's wiring.
import { createApp, h, watchEffect } from 'vue'
import { openChat } from '../../../examples/clients/rejoin.js'
import { deeds, watched, whenAnswered } from './page.js'

export function mount(root, { origin, id }) {
  const page = watched()
  const { chat, opened, stop, leave } = openChat(origin, id, { sendAutomaticallyWhen: whenAnswered })
  const app = createApp({
    setup() {
      watchEffect(() => page.told(chat), { flush: 'post' })
      return () => chat.messages.map((m) => h('p', { key: m.id }, m.parts.map((p) => p.text).join('')))
    },
  })
  app.mount(root)
  return { ...page, ...deeds(() => chat, stop), closeSocket: () => chat.stop(), opened, unmount: () => (app.unmount(), leave()) }
}
