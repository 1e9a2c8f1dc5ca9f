// Asks the Rust side (ui-lines.rs): one process for a whole list of questions.
import { spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** The answers, in the order of the questions. */
export async function ask(questions) {
  const child = spawn('cargo', ['run', '--locked', '--quiet', '--example', 'ui-lines'], { cwd: ROOT, stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = new Promise((resolve, reject) => child.on('error', reject).on('close', resolve))
  child.stdin.on('error', () => {})
  child.stdin.end(questions.map((question) => `${JSON.stringify(question)}\n`).join(''))
  const [output, code] = await Promise.all([text(child.stdout), ended])
  const answers = output.split('\n').filter(Boolean).map((line) => JSON.parse(line))
  if (code !== 0 || answers.length !== questions.length) {
    throw new Error(`ui-lines ended with ${code} after ${answers.length} of ${questions.length} answers`)
  }
  return answers
}
