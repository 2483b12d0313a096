/**
 * How much a scan slows GET /api/projects of the real control plane process: at rest and during the
 * scan, in turns in one run. Two scans: one hashes every file again and finds no change, and one
 * records a new version. For comparison, `sha256sum` reads the same files at the scan's priority:
 * that shows how much the machine itself slows the API while a core is busy.
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
import type { RequesterOptions } from './api-requester.ts';
import { summary } from './stats.ts';

const [FOLDERS, FILES_EACH] = [100, 300];
const FILE = Buffer.alloc(16 * 1024, 'a reading of a station\n');
/**
 * One content under many names: enough to hash for some seconds, small enough for the page cache.
 */
const [ARCHIVE_BYTES, ARCHIVE_NAMES] = [256 * 1024 * 1024, 24];
/**
 * Changed files per folder, so that each folder has new objects. They are on disk before the scan:
 * a share has a disk of its own.
 */
const CHANGED_EACH = 60;
const [ROUNDS, EVERY_MS] = [6, 5];
const [REST_MS, POLL_MS] = [4_000, 50];
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
  const server = await startProcess(
    [process.execPath, join(repositoryRoot, 'bin', 'berth'), 'control-plane'],
    {
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
    },
  );
  let requester: ChildProcess | undefined;
  try {
    const anonymous = createClient({ baseUrl: url });
    await untilReady(
      server,
      async () => (await anonymous.exchange('readyz', {})).status === 200,
      30_000,
    );
    const { token } = await anonymous.call('login', { body: ADMIN });
    const api = createClient({
      baseUrl: url,
      headers: () => ({ authorization: `Bearer ${token}` }),
    });
    const { id } = await api.call('createDataset', {
      body: { name: 'readings', nfs_path: 'readings' },
    });
    await untilScanned(api, id);
    const asked: RequesterOptions = { url: `${url}/api/projects`, token, everyMs: EVERY_MS };
    requester = fork(join(import.meta.dirname, 'api-requester.ts'), [JSON.stringify(asked)]);
    const rounds: Round[] = [];
    // The first round is not counted, because the compiler has not optimized the measured code yet.
    for (let i = 0; i <= ROUNDS; i++) {
      const atRest = await during(requester, () => rest(api, id));
      const tool = await during(requester, () => sha256sum(join(share, 'readings', 'archive')));
      const full = await during(requester, () => scan(api, id, true));
      await write(join(share, 'readings'), CHANGED_EACH, `change ${i}`);
      await run(['sync']);
      const recorded = await during(requester, () => scan(api, id, false));
      if (i > 0) rounds.push({ rest: atRest, tool, full, recorded });
    }
    const { version } = await api.call('getDataset', { params: { id } });
    if (version !== ROUNDS + 2)
      throw new Error(`after ${ROUNDS + 1} changes the dataset is at version ${version}`);
    return [
      line('while sha256sum reads the archive, for comparison', rounds, (r) => r.tool, false),
      line(
        `while all of ${FOLDERS * FILES_EACH + ARCHIVE_NAMES} files are hashed again`,
        rounds,
        (r) => r.full,
      ),
      line(
        `while a version with ${FOLDERS * CHANGED_EACH} changed files is found and recorded`,
        rounds,
        (r) => r.recorded,
      ),
    ];
  } finally {
    requester?.kill();
    await server.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

/** Writes files without leaving garbage that would be collected while the scan is measured. */
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

/** Runs at the priority of a scan's child process. */
function sha256sum(dir: string): Promise<void> {
  const files = Array.from({ length: ARCHIVE_NAMES / 3 }, (_, i) => join(dir, `${i}.bin`));
  const child = spawn('nice', ['-n', '10', 'sha256sum', ...files], {
    stdio: 'ignore',
    env: { PATH: '/usr/bin:/bin' },
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`sha256sum ended with ${code}`)),
    );
  });
}

async function scan(api: Client, id: string, full: boolean): Promise<void> {
  await api.call('scanDataset', { params: { id }, body: { full } });
  await untilScanned(api, id);
}

/** Polls the scan like a measured phase does, because those requests add to the server's work. */
async function rest(api: Client, id: string): Promise<void> {
  for (const end = performance.now() + REST_MS; performance.now() < end; await setTimeout(POLL_MS))
    await api.call('getDataset', { params: { id } });
}

const untilScanned = (api: Client, id: string): Promise<unknown> =>
  waitFor(
    'the scan is finished',
    async () => {
      const dataset = await api.call('getDataset', { params: { id } });
      return dataset.status === 'ok' && !dataset.scanning && dataset.version !== null;
    },
    { deadlineMs: 300_000, intervalMs: POLL_MS },
  );

/** Sends requests at a steady rate until `work` is done. Returns the milliseconds of each. */
export async function during(
  requester: ChildProcess,
  work: () => Promise<unknown>,
): Promise<number[]> {
  const answered = Promise.withResolvers<number[] | string>();
  requester.once('message', answered.resolve);
  const ended = (code: number | null): void => answered.resolve(`the process ended with ${code}`);
  requester.once('exit', ended);
  requester.send('begin');
  await work();
  requester.send('end');
  const took = await answered.promise;
  requester.removeListener('exit', ended);
  if (typeof took === 'string') throw new Error(`the API requester failed: ${took}`);
  return took;
}

function line(
  when: string,
  rounds: readonly Round[],
  of: (round: Round) => number[],
  judged = true,
): string {
  const [rest, busy] = [summary(rounds.flatMap((r) => r.rest)), summary(rounds.flatMap(of))];
  // Percentiles of all rounds together: the slowest 1 % of one round is a dozen requests, which the
  // machine may have delayed.
  const ratio = busy.p99 / rest.p99;
  return (
    `data: API ${when}: p99 ${busy.p99.toFixed(1)} ms (p50 ${busy.p50.toFixed(1)}, ` +
    `${rounds.flatMap(of).length} requests), at rest p99 ${rest.p99.toFixed(1)} ms (p50 ` +
    `${rest.p50.toFixed(1)}): ratio ` +
    `${ratio.toFixed(2)}${judged ? `; goal <= ${GOAL}: ${ratio <= GOAL ? 'met' : 'MISSED'}` : ''}`
  );
}
