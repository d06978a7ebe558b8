// What every driver in JavaScript does with its client; the steps are those of steps.py.
const STEP_MS = 15000
const PAUSE_MS = 50
const SLOTS = 2
const BURST = 6
const MAX_CALLS = 200
const SINGLE = {
  good: ['wire_echo', { text: 'hello' }],
  bad_arguments: ['wire_echo', { txt: 'hello' }],
  said_no: ['wire_fail', { text: 'The shop' }],
  not_there: ['wire_trouble', { kind: 'missing' }],
  crashed: ['wire_trouble', { kind: 'crash' }],
  bad_output: ['wire_trouble', { kind: 'nonsense' }],
  role: ['wire_admin', { text: 'hello' }],
  role_of_argument: ['analyze_dissonance', { mode: 'calibration', files: ['a'] }],
  unknown: ['wire_ecko', { text: 'hello' }],
  null: ['wire_echo', { text: 'hello', times: null }],
  afterwards: ['wire_echo', { text: 'still here' }],
}

export async function server() {
  const pieces = []
  for await (const piece of process.stdin) pieces.push(piece)
  return JSON.parse(Buffer.concat(pieces).toString())
}

export function tell(told) {
  process.stdout.write('\n' + JSON.stringify(told) + '\n', () => process.exit(0))
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

// call(tool, arguments, {signal, onprogress}) -> {isError, text}
export async function tried(work) {
  const late = sleep(STEP_MS).then(() => ({ ok: false, text: 'hangs' }))
  const done = work().then(
    ({ isError, text }) => ({ ok: !isError, text }),
    (fault) => ({ ok: false, text: `${fault.name}: ${fault.message}` }),
  )
  return Promise.race([done, late])
}

// connect(where) -> {names, call}. sdk: progress and cancelling, too; else many calls at once, as agents make them.
export async function drive(connect, options) {
  const told = {}
  for (const [transport, where] of Object.entries(await server())) told[transport] = await everyStep(connect, where, options)
  tell(told)
}

async function everyStep(connect, where, { sdk = true } = {}) {
  const told = {}
  try {
    const { names, call } = await connect(where)
    Object.assign(told, await singleSteps(call, names))
    if (sdk) Object.assign(told, { progress: await withProgress(call) }, await limited(call))
    else told.burst = await burst(call)
    if (where.full) Object.assign(told, await untilFull((await connect(where.full)).call))
  } catch (fault) {
    told.session = { ok: false, text: `${fault.name}: ${fault.message}` }
  }
  return told
}

async function singleSteps(call, names) {
  const told = { list: { ok: names.includes('wire_echo'), text: `${names.length} tools` } }
  for (const [step, [tool, args]] of Object.entries(SINGLE)) told[step] = await tried(() => call(tool, args))
  return told
}

async function withProgress(call) {
  const heard = []
  const answer = await tried(() => call('wire_progress', { text: 'done' }, { onprogress: (note) => heard.push(note.progress) }))
  return answer.ok ? { ok: heard.join() === '1,2,3', text: heard.join() } : answer
}

async function limited(call) {
  const leaving = new AbortController()
  let lost = 0
  const began = []
  const waiting = Array.from({ length: SLOTS }, () => {
    let begins
    began.push(new Promise((done) => { begins = done }))
    return call('wire_wait', { text: 'x' }, { signal: leaving.signal, onprogress: begins })
      .catch(() => { lost += leaving.signal.aborted ? 0 : 1 })
  })
  // Each tells when it runs, so that it is known to hold its slot.
  await Promise.race([Promise.all(began), sleep(STEP_MS)])
  const refused = await tried(() => call('wire_echo', { text: 'one too many' }))
  const untouched = lost === 0
  leaving.abort()
  await Promise.all(waiting)
  return {
    too_many: refused,
    others_go_on: { ok: untouched, text: untouched ? '' : 'calls under way were lost' },
    cancel: await untilFree(call),
  }
}

// Every slot, at once: cancelling is a message of its own.
async function untilFree(call) {
  const due = Date.now() + STEP_MS
  for (;;) {
    const answers = await Promise.all(Array.from({ length: SLOTS }, () => tried(() => call('wire_progress', { text: 'hello' }))))
    const refused = answers.filter(({ ok }) => !ok)
    if (refused.length === 0 || Date.now() > due) return refused[0] ?? answers[0]
    await sleep(PAUSE_MS)
  }
}

async function burst(call) {
  const answers = await Promise.all(Array.from({ length: BURST }, (_, number) => tried(() => call('wire_progress', { text: `hello ${number}` }))))
  const good = answers.filter(({ text }) => text.includes('hello')).length
  const refused = answers.filter(({ text }) => text.includes('calls of this key are running')).length
  const after = await tried(() => call('wire_echo', { text: 'hello' }))
  const lost = answers.filter(({ text }) => !text.includes('hello') && !text.includes('are running')).map(({ text }) => text)
  if (!after.text.includes('hello')) lost.push(`afterwards: ${after.text}`)
  return { ok: lost.length === 0, text: `${good} answered, ${refused} refused; ${lost.join('; ').slice(0, 300)}` }
}

// Call until the server's audit log takes no more; the answer is told, and so is the next one.
async function untilFull(call) {
  let answer = { ok: true }
  for (let turn = 0; turn < MAX_CALLS && answer.ok; turn++) answer = await tried(() => call('wire_echo', { text: 'hello' }))
  return { unavailable: answer, unavailable_again: await tried(() => call('wire_echo', { text: 'hello' })) }
}
