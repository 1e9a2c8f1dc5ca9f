// Pages of real chat interfaces, built from tests/e2e/pages and run in Node: React, Vue and Svelte draw into a document of jsdom.
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { after } from 'node:test'
import { build } from 'esbuild'
import { LONG, within } from './wait.mjs'

const here = (path) => fileURLToPath(new URL(path, import.meta.url))
const PAGES = here('../pages/')

/**
 * What an app installs for each interface: the file of the page, and which package stands for a name that the page or the example imports.
 * A package's own imports are resolved as npm lays them out.
 */
export const INTERFACES = {
  'react-6': { page: 'react.jsx', packages: { '@ai-sdk/react': 'ai-react-6', ai: 'ai-6-latest' } },
  'react-7': { page: 'react.jsx', packages: { '@ai-sdk/react': 'ai-react-7', ai: 'ai-7-latest' } },
  vue: { page: 'vue.js', packages: { '@ai-sdk/react': '@ai-sdk/vue', ai: 'ai-7-latest' } },
  svelte: { page: 'svelte.js', packages: { '@ai-sdk/react': '@ai-sdk/svelte', ai: 'ai-7-latest' } },
  assistant: { page: 'assistant.jsx', packages: { '@ai-sdk/react': 'ai-react-7', ai: 'ai-7-latest' } },
}

/** Builds the page of an interface (or another `entry` with its packages) into one module file. */
export async function bundle(name, outfile, { entry, format = 'esm' } = {}) {
  const { page, packages } = INTERFACES[name]
  await build({
    entryPoints: [entry ?? join(PAGES, page)],
    outfile,
    format,
    bundle: true,
    platform: 'browser',
    target: 'es2022',
    jsx: 'automatic',
    conditions: ['svelte', 'browser'],
    define: { 'process.env.NODE_ENV': '"production"', __VUE_OPTIONS_API__: 'true', __VUE_PROD_DEVTOOLS__: 'false', __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: 'false' },
    logLevel: 'error',
    plugins: [standIns(packages), svelte],
  })
}

/** The packages of an app, seen from its own files only. */
const standIns = (packages) => ({
  name: 'stand-ins',
  setup(build) {
    const names = new RegExp(`^(${Object.keys(packages).join('|')})$`)
    build.onResolve({ filter: names }, ({ path, importer, kind, pluginData }) => {
      if (pluginData === 'stood in' || importer.includes('/node_modules/')) return undefined
      return build.resolve(packages[path], { kind, resolveDir: PAGES, pluginData: 'stood in' })
    })
  },
})

const svelte = {
  name: 'svelte',
  setup(build) {
    build.onLoad({ filter: /\.svelte(\.js)?$/ }, async ({ path }) => {
      const { compile, compileModule } = await import('svelte/compiler')
      const source = await readFile(path, 'utf8')
      const options = { filename: path, generate: 'client', dev: false }
      const { js } = path.endsWith('.js') ? compileModule(source, options) : compile(source, options)
      return { contents: js.code, loader: 'js' }
    })
  },
}

const folder = mkdtempSync(join(tmpdir(), 'rejoin-pages-'))
const opened = new Set()
after(() => {
  opened.forEach((page) => page.close())
  rmSync(folder, { recursive: true, force: true })
})
const modules = new Map()

async function moduleOf(name) {
  await standInBrowser()
  if (!modules.has(name)) {
    const outfile = join(folder, `${name}.mjs`)
    modules.set(name, bundle(name, outfile).then(() => import(pathToFileURL(outfile))))
  }
  return modules.get(name)
}

/**
 * Opens a page: `mount` is the export that does. The answer has the page's state (`messages()`, `status()`, `error()`, `last()`), its deeds
 * (`send`, `edit`, `regenerate`, `resume`, `answer`, `approve`, `stop`), `until(test)`, which looks again at every change, and `close()`.
 */
export async function openPage(name, { mount = 'mount', ...options }) {
  const module = await moduleOf(name)
  const root = document.createElement('div')
  document.body.append(root)
  const page = await module[mount](root, options)
  const self = {
    ...page,
    messages: () => page.state().messages,
    status: () => page.state().status,
    error: () => page.state().error,
    last: () => page.state().messages.at(-1),
    async until(test, what = 'the awaited state of the page', ms = LONG) {
      const reached = Promise.withResolvers()
      const off = page.watch((state) => void (test(self, state) && reached.resolve()))
      try {
        await within(reached.promise, ms, what)
      } catch (error) {
        throw new Error(`${name}: ${error.message}: ${JSON.stringify(page.state())}`)
      } finally {
        off()
      }
      return self
    },
    /** Leaves the page, as a reload or a closed tab does. */
    close() {
      if (!opened.delete(self)) return
      page.unmount()
      root.remove()
    },
  }
  opened.add(self)
  return self
}

let dressed
/** A document for pages in Node; and a fetch whose bodies break as a browser's do. */
function standInBrowser() {
  dressed ??= (async () => {
    const { JSDOM } = await import('jsdom')
    const { window } = new JSDOM('<!doctype html><body></body>', { url: 'http://app.example/', pretendToBeVisual: true })
    const borrowed = ['window', 'document', 'navigator', 'Node', 'Element', 'HTMLElement', 'HTMLIFrameElement', 'SVGElement', 'Text', 'Comment', 'Event', 'CustomEvent',
      'KeyboardEvent', 'MutationObserver', 'requestAnimationFrame', 'cancelAnimationFrame', 'getComputedStyle', 'sessionStorage', 'localStorage', 'DocumentFragment', 'NodeFilter',
      'HTMLInputElement', 'HTMLTextAreaElement', 'HTMLTemplateElement', 'HTMLMediaElement']
    for (const name of borrowed) Object.defineProperty(globalThis, name, { configurable: true, writable: true, value: name === 'window' ? window : window[name] })
    const native = globalThis.fetch
    globalThis.fetch = async (...request) => {
      const response = await native(...request).catch((error) => {
        throw error.name === 'AbortError' ? error : new TypeError('Failed to fetch', { cause: error })
      })
      if (!response.body) return response
      const reader = response.body.getReader()
      const body = new ReadableStream({
        async pull(controller) {
          const { done, value } = await reader.read().catch((error) => {
            throw error.name === 'AbortError' ? error : new TypeError('network error', { cause: error })
          })
          if (done) controller.close()
          else controller.enqueue(value)
        },
        cancel: (reason) => reader.cancel(reason),
      }, { highWaterMark: 0 })
      return new Response(body, { status: response.status, statusText: response.statusText, headers: response.headers })
    }
  })()
  return dressed
}

/** The browser of the machine, for tests that need a real one; undefined where there is none. None is ever downloaded. */
export const chromium = () => [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser'].find((path) => path && existsSync(path))
export const playwright = () => createRequire(import.meta.url)('playwright-core')
