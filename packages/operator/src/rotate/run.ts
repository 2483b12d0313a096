/**
 * `berth rotate`: replaces a secret in three steps. Every file gets the new value before a process
 * uses it, because two processes never reload at the same moment:
 *
 *   added      the new value is last in every file: verifiers accept it, and no signer uses it
 *   in front   the new value is first: signers use it, and verifiers still accept the older values
 *   finished   the older values are removed
 *
 * Each run reads the current step from the files themselves, so a run after a kill continues there.
 */
import { hostname } from 'node:os';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { fingerprintOf, fingerprintsOf } from '@berth/kit/fingerprint';
import { messageOf } from '@berth/kit/message-of';
import { WrongUsage } from '@berth/kit/wrong-usage';
import type { Rotation } from '@berth/wire/rotation';
import { complain, print, Problem, runCommand } from '../lib/command.ts';
import { ETC, readText } from '../lib/etc-files.ts';
import { type Copy, findCopies, valuesIn, writeCopy } from './copies.ts';
import { type RotatedSecret, SECRETS, verifiersIn } from './names.ts';
import { type How, type ReadRotation, readRotation, reload } from './processes.ts';
import { forget, readStarted, writeStarted } from './state.ts';
import { usersOf } from './users.ts';

const USAGE = `Usage: berth rotate agent|gateway|session|jwt|secrets [--again]
       berth rotate NAME --status
       berth rotate NAME --finish [--force]
       berth rotate NAME --from FILE|- [--force]

Replaces a secret without a restart and without a failed request. The first form puts a new value in front, in every
file of this machine; the earlier one stays valid. --finish removes the earlier one when nothing uses it any more.
Run it again after an interruption. docs/rotate.md says what each secret protects and what to do if it leaked.

  --status     shows which values the files and processes have, and what still uses an earlier one
  --finish     removes the earlier values; names what still uses them and refuses (exit code 1)
  --force      with --finish: removes them all the same, and says what that breaks
  --again      begins another rotation before the last one is finished
  --from       on another machine: takes the content of the setting from FILE or from standard input
  --pid N      sends SIGHUP to this process instead of systemctl reload or docker compose kill; may be repeated
  --no-reload  sends no signal
  --etc DIR    folder of the settings (default ${ETC})

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 waits for another machine.`;

const WAITS = 3;
/**
 * Time in ms for processes on this machine to reload the file, and for other machines to report.
 */
const TAKE_MS = 30_000;
const ELSEWHERE_MS = 3_000;
const POLL_MS = 400;

/** Runs `berth rotate`. `read`: tests replace it. */
export const runRotate = (args: string[], read: ReadRotation = readRotation): Promise<number> =>
  runCommand('rotate', USAGE, args, () => rotate(args, read));

async function rotate(args: string[], read: ReadRotation): Promise<number> {
  const { positionals, values } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      status: { type: 'boolean' },
      finish: { type: 'boolean' },
      force: { type: 'boolean' },
      again: { type: 'boolean' },
      from: { type: 'string' },
      pid: { type: 'string', multiple: true },
      'no-reload': { type: 'boolean' },
      etc: { type: 'string' },
    },
  });
  const [name = '', ...more] = positionals;
  if (!Object.hasOwn(SECRETS, name) || more.length > 0)
    throw new WrongUsage(
      `name one secret: ${Object.keys(SECRETS).join(', ')}` +
        (name === '' ? '' : `; not “${positionals.join(' ')}”`),
    );
  const forms = [values.status, values.finish, values.again, values.from].filter(
    (one) => one !== undefined,
  );
  if (forms.length > 1)
    throw new WrongUsage('--status, --finish, --again and --from exclude each other');
  if (values.force === true && values.finish !== true && values.from === undefined)
    throw new WrongUsage('--force belongs to --finish or --from');
  const pids = (values.pid ?? []).map(Number);
  if (pids.some((pid) => !Number.isSafeInteger(pid) || pid < 2))
    throw new WrongUsage('--pid takes the number of a process');
  const how: How = {
    etc: values.etc ?? ETC,
    pids,
    reload: values['no-reload'] !== true,
    readRotation: read,
  };
  const secret: RotatedSecret = SECRETS[name as keyof typeof SECRETS];
  if (values.from !== undefined) return takeFrom(secret, how, values.from, values.force === true);
  const copies = findCopies(how.etc, secret);
  if (copies.length === 0) throw new Problem(nothingHere(secret, how));
  if (values.status === true) return status(secret, how, copies);
  if (values.finish === true) return finish(secret, how, copies, values.force === true);
  return begin(secret, how, copies, values.again === true);
}

const nothingHere = ({ setting, name }: RotatedSecret, { etc }: How): string =>
  `no process on this machine reads ${setting} from a file: no ` +
  `${etc}/secrets/<process>/${setting}, and no ${setting}_FILE in ${etc}/*.env. Run it on a ` +
  `machine that has it${name === 'session' ? ', a gateway' : ', the control plane'}`;

/**
 * Returns whether the copy's process verifies with the secret. Other copies do not count: an agent
 * can have an old file that it does not need.
 */
const isVerifier = ({ verifiers }: RotatedSecret, { process }: Copy): boolean =>
  verifiers.some((one) => one === process);

async function begin(
  secret: RotatedSecret,
  how: How,
  copies: readonly Copy[],
  again: boolean,
): Promise<number> {
  const { setting, name } = secret;
  const started = readStarted(how.etc, secret);
  const startedValue = copies
    .flatMap(({ values }) => values)
    .find((value) => fingerprintOf(setting, value) === started?.fingerprint);
  const isInFront =
    startedValue !== undefined && copies.every(({ values }) => values[0] === startedValue);
  let next = startedValue;
  if (startedValue !== undefined && isInFront) {
    const rotation = await how.readRotation(how);
    const behind =
      rotation === null
        ? []
        : verifiersIn(rotation, secret).filter(
            ({ values }) => values[0] !== fingerprintOf(setting, startedValue),
          );
    if (behind.length === 0 && !again)
      throw new Problem(
        `the rotation of ${setting} that began at ${started?.started_at} is not finished: run ` +
          `berth rotate ${name} --finish, or berth rotate ${name} --again to put another new ` +
          'value in front',
      );
    if (again && behind.length === 0) next = undefined;
  } else if (again)
    throw new WrongUsage(
      '--again is for a rotation whose new value is in front: run it without --again',
    );
  if (next === undefined) {
    next = secret.make();
    // Write the fingerprint before the files, so that the next run knows the new value.
    writeStarted(how.etc, secret, next, Date.now());
  } else if (!isInFront) print(`going on with the rotation that began at ${started?.started_at}`);
  const value = next;
  const fingerprint = fingerprintOf(setting, value);

  const added = copies.filter((copy) => !copy.values.includes(value) && isVerifier(secret, copy));
  for (const copy of added) {
    write(copy, [...copy.values, value], secret);
    print(`added the new value: ${copy.path}`);
  }
  if (added.length > 0 || !isInFront) {
    print(
      await reload(
        how,
        copies.map((copy) => copy.process),
      ),
    );
    const { waiting } = await untilTaken(secret, how, ({ values }) => values.includes(fingerprint));
    if (waiting.length > 0)
      return copyTo(
        secret,
        copies,
        waiting,
        'do not know the new value yet',
        `berth rotate ${name}`,
      );
  }
  const behind = findCopies(how.etc, secret).filter(({ values }) => values[0] !== value);
  for (const copy of behind) {
    write(copy, [value, ...copy.values.filter((one) => one !== value)], secret);
    print(`put the new value in front: ${copy.path}`);
  }
  print(
    await reload(
      how,
      copies.map((copy) => copy.process),
    ),
  );
  const { waiting, last } = await untilTaken(
    secret,
    how,
    ({ values }) => values[0] === fingerprint,
  );
  if (waiting.length > 0)
    return copyTo(
      secret,
      copies,
      waiting,
      'do not have the new value in front yet',
      `berth rotate ${name}`,
    );
  print(
    `${setting}: the new value is in use, and the earlier one is still accepted. Later: berth ` +
      `rotate ${name} --finish`,
  );
  await printUsers(secret, how, findCopies(how.etc, secret), last ?? undefined);
  return 0;
}

async function finish(
  secret: RotatedSecret,
  how: How,
  copies: readonly Copy[],
  force: boolean,
): Promise<number> {
  const { setting, name } = secret;
  const [front = ''] = (copies.find((copy) => isVerifier(secret, copy)) ?? copies[0])?.values ?? [];
  const started = readStarted(how.etc, secret);
  if (
    copies.some((copy) => copy.values[0] !== front) ||
    (started !== null && started.fingerprint !== fingerprintOf(setting, front))
  )
    throw new Problem(
      `the new value of ${setting} is not in front everywhere: run berth rotate ${name} first`,
    );
  const earlier = [...new Set(copies.flatMap(({ values }) => values.slice(1)))];
  const rotation = await how.readRotation(how).catch((error: unknown) => {
    if (force) return null;
    throw new Problem(
      `what uses the earlier value is not known, so nothing was changed: ${messageOf(error)}`,
      { cause: error },
    );
  });
  const current = fingerprintOf(setting, front);
  if (rotation !== null && earlier.length > 0) {
    const { blocking, notes } = usersOf(
      secret,
      current,
      fingerprintsOf(setting, earlier),
      rotation,
      Date.now(),
    );
    for (const line of notes) print(`note: ${line}`);
    for (const line of blocking)
      complain(`${force ? 'breaks' : 'still uses the earlier value'}: ${line}`);
    if (blocking.length > 0 && setting === 'SECRETS_KEY')
      throw new Problem(
        `nothing was changed: without the earlier key, ${secret.breaks}. Reload the control ` +
          'planes, then run this again',
      );
    if (blocking.length > 0 && !force)
      throw new Problem(`nothing was changed. Wait, or use --force: then ${secret.breaks}`);
    if (blocking.length > 0) complain(`--force: ${secret.breaks}`);
  } else if (rotation === null && !force)
    throw new Problem('this machine has neither a control plane nor a gateway: finish it there');
  if (earlier.length === 0) print(`no file on this machine has an earlier value of ${setting}`);
  for (const copy of copies)
    if (write(copy, [front], secret)) print(`removed the earlier value: ${copy.path}`);
  print(
    await reload(
      how,
      copies.map((copy) => copy.process),
    ),
  );
  const { waiting } = await untilTaken(secret, how, ({ values }) => values.join() === current);
  if (waiting.length > 0)
    return copyTo(
      secret,
      copies,
      waiting,
      'still accept the earlier value',
      `berth rotate ${name} --finish`,
    );
  forget(how.etc, secret);
  print(`${setting}: finished; the earlier value is refused now`);
  if (name === 'agent')
    print(
      'machines whose agent has a secret of its own need no new value; their files may keep ' +
        'the earlier one',
    );
  return 0;
}

async function status(secret: RotatedSecret, how: How, copies: readonly Copy[]): Promise<number> {
  const started = readStarted(how.etc, secret);
  print(
    started === null
      ? `${secret.setting}: no rotation runs`
      : `${secret.setting}: rotation since ${started.started_at}`,
  );
  for (const { path, values } of copies)
    print(`file ${path}: ${fingerprintsOf(secret.setting, values).join(', ')}`);
  const rotation = await how.readRotation(how);
  if (rotation === null) return 0;
  for (const { kind, name, values } of verifiersIn(rotation, secret))
    print(`${kind} ${name}: ${values.join(', ') || 'none'}`);
  await printUsers(secret, how, copies, rotation);
  return 0;
}

async function printUsers(
  secret: RotatedSecret,
  how: How,
  copies: readonly Copy[],
  known?: Rotation,
): Promise<void> {
  const rotation = known ?? (await how.readRotation(how));
  const [front, ...earlier] =
    (copies.find((copy) => isVerifier(secret, copy)) ?? copies[0])?.values ?? [];
  if (rotation === null || front === undefined || earlier.length === 0) return;
  const { setting } = secret;
  const { blocking, notes } = usersOf(
    secret,
    fingerprintOf(setting, front),
    fingerprintsOf(setting, earlier),
    rotation,
    Date.now(),
  );
  for (const line of blocking) print(`still uses the earlier value: ${line}`);
  for (const line of notes) print(`note: ${line}`);
  if (blocking.length === 0) print('nothing uses the earlier value any more');
}

/** Replaces the copies on this machine with values from the machine that runs the rotation. */
async function takeFrom(
  secret: RotatedSecret,
  how: How,
  from: string,
  force: boolean,
): Promise<number> {
  const content = from === '-' ? await text(process.stdin) : readText(from);
  if (content === undefined) throw new Problem(`${from} does not exist`);
  const values = valuesIn(content, from === '-' ? 'standard input' : from, secret);
  const copies = findCopies(how.etc, secret);
  if (copies.length === 0) throw new Problem(nothingHere(secret, how));
  for (const { path, values: before } of copies)
    if (!force && !values.includes(before[0] ?? ''))
      throw new Problem(
        `${path} has a value in front that ${from === '-' ? 'standard input' : from} does not ` +
          'have: it would be refused at once (--force does it)',
      );
  for (const copy of copies) if (write(copy, values, secret)) print(`written: ${copy.path}`);
  print(
    await reload(
      how,
      copies.map((copy) => copy.process),
    ),
  );
  return 0;
}

function write(copy: Copy, values: readonly string[], secret: RotatedSecret): boolean {
  // Refuse the same values that the processes would refuse.
  valuesIn(values.join(','), copy.path, secret);
  return writeCopy(copy, values);
}

type Verifier = ReturnType<typeof verifiersIn>[number];
/**
 * Waits until all running verifiers have the new value. Returns the verifiers that still wait after
 * TAKE_MS (if one is on this machine) or after ELSEWHERE_MS.
 */
async function untilTaken(
  secret: RotatedSecret,
  how: How,
  has: (one: Verifier) => boolean,
): Promise<{ waiting: Verifier[]; last: Rotation | null }> {
  if (!how.reload) return { waiting: [], last: null };
  const begun = performance.now();
  for (;;) {
    const rotation = await how.readRotation(how);
    if (rotation === null) return { waiting: [], last: null };
    const waiting = verifiersIn(rotation, secret).filter((one) => !has(one));
    const isHere = waiting.some(({ name }) => name.startsWith(`${hostname()} `));
    if (waiting.length === 0 || performance.now() - begun > (isHere ? TAKE_MS : ELSEWHERE_MS))
      return { waiting, last: rotation };
    await sleep(POLL_MS);
  }
}

function copyTo(
  { setting, name }: RotatedSecret,
  copies: readonly Copy[],
  waiting: readonly Verifier[],
  what: string,
  then: string,
): number {
  complain(`these processes ${what}:`);
  for (const one of waiting) complain(`  ${one.kind} ${one.name}`);
  complain(
    'On this machine: look at their log (“setting not read again” names the rule). On another ' +
      'machine, for each one:',
  );
  complain(
    `  sudo cat ${copies[0]?.path ?? setting} | ssh root@OTHER berth rotate ${name} --from -`,
  );
  complain(`Then run this again: ${then}`);
  return WAITS;
}
