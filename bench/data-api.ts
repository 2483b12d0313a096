/**
 * What people feel of a scan: GET /api/projects of the real control plane process, at rest and while it scans, in turns in one
 * run. Two scans: one that hashes every file again and finds nothing new, and one whose new version is recorded meanwhile. And
 * while `sha256sum` reads the same as low in priority as a scan: what the machine does to the API when a core is busy, whoever it is.
 */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { link, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { type Client, createClient } from '@berth/wire/client';
import { repositoryRoot } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { run, startProcess, untilReady } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import type { Asked } from './asker.ts';
import { summary } from './stats.ts';

const [FOLDERS, FILES_EACH] = [100, 300];
const FILE = Buffer.alloc(16 * 1024, 'a reading of a station\n');
/** Under so many names: enough to hash for some seconds, small enough for the page cache. */
const [ARCHIVE_BYTES, ARCHIVE_NAMES] = [256 * 1024 * 1024, 24];
/** Of each folder, so that each has new objects. They are on the disk before the scan: a share's disk is not that of the database. */
const CHANGED_EACH = 60;
const [ROUNDS, EVERY_MS] = [6, 5];
const [REST_MS, LOOK_MS] = [4_000, 50];
const GOAL = 1.5;
const ADMIN = { email: 'admin@berth.localhost', password: 'only for the benchmark' };

type Round = { rest: number[]; tool: number[]; full: number[]; recorded: number[] };

export async function benchDataApi(): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-api-'));
  const share = join(dir, 'share');
  await write(join(share, 'readings'), FILES_EACH, 'first');
  await writeArchive(join(share, 'readings', 'archive'));
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const server = await startProcess([process.execPath, join(repositoryRoot, 'bin', 'berth'), 'control-plane'], {
    name: 'control-plane',
    env: {
      LISTEN: `127.0.0.1:${port}`,
      DATABASE_URL: `sqlite:${join(dir, 'berth.db')}`,
      BASE_DOMAIN: 'berth.localhost',
      ADMIN_EMAILS: ADMIN.email,
      ADMIN_PASSWORD: ADMIN.password,
      DATASET_NFS_BASE_PATH: share,
      LOG_FORMAT: 'json',
      LOG_LEVEL: 'warn',
    },
  });
  let asker: ChildProcess | undefined;
  try {
    const anonymous = createClient({ baseUrl: url });
    await untilReady(server, async () => (await anonymous.exchange('readyz', {})).status === 200, 30_000);
    const { token } = await anonymous.call('login', { body: ADMIN });
    const api = createClient({ baseUrl: url, headers: () => ({ authorization: `Bearer ${token}` }) });
    const { id } = await api.call('createDataset', { body: { name: 'readings', nfs_path: 'readings' } });
    await untilScanned(api, id);
    const asked: Asked = { url: `${url}/api/projects`, token, everyMs: EVERY_MS };
    asker = fork(join(import.meta.dirname, 'asker.ts'), [JSON.stringify(asked)]);
    const rounds: Round[] = [];
    // The first is not counted: the compiler is not done with the ways that are measured.
    for (let i = 0; i <= ROUNDS; i++) {
      const atRest = await during(asker, () => rest(api, id));
      const tool = await during(asker, () => sha256sum(join(share, 'readings', 'archive')));
      const full = await during(asker, () => scan(api, id, true));
      await write(join(share, 'readings'), CHANGED_EACH, `change ${i}`);
      await run(['sync']);
      const recorded = await during(asker, () => scan(api, id, false));
      if (i > 0) rounds.push({ rest: atRest, tool, full, recorded });
    }
    const { version } = await api.call('getDataset', { params: { id } });
    if (version !== ROUNDS + 2) throw new Error(`after ${ROUNDS + 1} changes the dataset is at version ${version}`);
    return [
      line('while sha256sum reads the archive, for comparison', rounds, (r) => r.tool, false),
      line(`while all of ${FOLDERS * FILES_EACH + ARCHIVE_NAMES} files are hashed again`, rounds, (r) => r.full),
      line(`while a version with ${FOLDERS * CHANGED_EACH} changed files is found and recorded`, rounds, (r) => r.recorded),
    ];
  } finally {
    asker?.kill();
    await server.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

/** Leaves no copies of the content to be collected while the scan is measured. */
async function write(dir: string, filesEach: number, text: string): Promise<void> {
  for (let d = 0; d < FOLDERS; d++) {
    const folder = join(dir, `day-${d}`);
    await mkdir(folder, { recursive: true });
    const files = Array.from({ length: filesEach }, (_, i) => join(folder, `${i}.csv`));
    await Promise.all(files.map((file) => writeFile(file, [`${file} ${text}\n`, FILE])));
  }
}

async function writeArchive(dir: string): Promise<void> {
  await mkdir(dir);
  await writeFile(join(dir, '0.bin'), Buffer.alloc(ARCHIVE_BYTES, 'an archive '));
  for (let i = 1; i < ARCHIVE_NAMES; i++) await link(join(dir, '0.bin'), join(dir, `${i}.bin`));
}

/** At the priority of a scan's child process. */
function sha256sum(dir: string): Promise<void> {
  const files = Array.from({ length: ARCHIVE_NAMES / 3 }, (_, i) => join(dir, `${i}.bin`));
  const child = spawn('nice', ['-n', '10', 'sha256sum', ...files], { stdio: 'ignore', env: { PATH: '/usr/bin:/bin' } });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => (code === 0 ? resolve() : reject(new Error(`sha256sum ended with ${code}`))));
  });
}

async function scan(api: Client, id: string, full: boolean): Promise<void> {
  await api.call('scanDataset', { params: { id }, body: { full } });
  await untilScanned(api, id);
}

/** With the same looks as during a scan, which count among what the server does. */
async function rest(api: Client, id: string): Promise<void> {
  for (const end = performance.now() + REST_MS; performance.now() < end; await setTimeout(LOOK_MS))
    await api.call('getDataset', { params: { id } });
}

const untilScanned = (api: Client, id: string): Promise<unknown> =>
  waitFor(
    'the scan is through',
    async () => {
      const dataset = await api.call('getDataset', { params: { id } });
      return dataset.status === 'ok' && !dataset.scanning && dataset.version !== null;
    },
    { deadlineMs: 300_000, intervalMs: LOOK_MS },
  );

/** Asks at a steady pace until `work` is through. Milliseconds of each. */
async function during(asker: ChildProcess, work: () => Promise<unknown>): Promise<number[]> {
  const answered = Promise.withResolvers<number[] | string>();
  asker.once('message', answered.resolve);
  const ended = (code: number | null): void => answered.resolve(`it ended with ${code}`);
  asker.once('exit', ended);
  asker.send('begin');
  await work();
  asker.send('end');
  const took = await answered.promise;
  asker.removeListener('exit', ended);
  if (typeof took === 'string') throw new Error(`the one who asks: ${took}`);
  return took;
}

function line(when: string, rounds: readonly Round[], of: (round: Round) => number[], judged = true): string {
  const [rest, busy] = [summary(rounds.flatMap((r) => r.rest)), summary(rounds.flatMap(of))];
  // Of all rounds together: the slowest hundredth of one round are a dozen requests, and what the machine did to them.
  const ratio = busy.p99 / rest.p99;
  return `data: API ${when}: p99 ${busy.p99.toFixed(1)} ms (p50 ${busy.p50.toFixed(1)}, ${rounds.flatMap(of).length} requests), at rest p99 ${rest.p99.toFixed(1)} ms (p50 ${rest.p50.toFixed(1)}): ratio ${ratio.toFixed(2)}${judged ? `; goal <= ${GOAL}: ${ratio <= GOAL ? 'met' : 'MISSED'}` : ''}`;
}
