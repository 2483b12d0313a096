/**
 * The cost of a dataset's second version, of which 1 % of the files changed, for a node that has
 * the first: the agent's copy, with its manifest from the real scanner, against `rsync -a` of
 * everything into an empty folder. In turns; by bytes and by time, both until the bytes are on
 * disk. The agent's time includes verification.
 */
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createDatasetParts, type DatasetParts } from '@berth/agent/data/dataset-parts';
import { createStorage } from '@berth/agent/disk/storage';
import { createScanner } from '@berth/control-plane/monitor/scanner';
import { silentLogger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { DatasetSource } from '@berth/wire/dataset';
import { walkTree } from '@berth/wire/tree';
import { summary } from './stats.ts';

const [FOLDERS, FILES_EACH, SIZE] = [100, 100, 20_000];
const CHANGED = 0.01;
const ROUNDS = 5;
const GOAL_BYTES = 0.1;
const INHERIT = { PATH: '/usr/bin:/bin' };

export async function benchDataCopy(): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-copy-'));
  const objects = new Map<string, string>();
  const fetched = { bytes: 0 };
  const data = await agentIn(dir, objects, fetched);
  try {
    await writeFiles(join(dir, 'share', 'set'), 1, 0);
    const scan = scannerIn(dir, objects);
    let version = await scan();
    (await ensure(data, version)).release();
    const rounds: { copied: number; copyMs: number; whole: number; wholeMs: number }[] = [];
    for (let i = 1; i <= ROUNDS; i++) {
      await writeFiles(join(dir, 'share', 'set'), CHANGED, i);
      version = await scan(version);
      fetched.bytes = 0;
      const [copyMs, held] = await timed(() => ensure(data, version));
      held.release();
      const [wholeMs, whole] = await timed(() =>
        rsyncWhole(join(dir, 'share', 'set'), join(dir, `whole-${i}`)),
      );
      rounds.push({ copied: (held.copied?.bytes ?? 0) + fetched.bytes, copyMs, whole, wholeMs });
      await rm(join(dir, `whole-${i}`), { recursive: true });
    }
    return [report(rounds)];
  } finally {
    await data.stop();
    await rm(dir, { recursive: true, force: true });
  }
}

function report(
  rounds: readonly { copied: number; copyMs: number; whole: number; wholeMs: number }[],
): string {
  const middle = (figure: (round: (typeof rounds)[number]) => number): number =>
    summary(rounds.map(figure)).p50;
  const bytes = middle((r) => r.copied) / middle((r) => r.whole);
  const time = middle((r) => r.copyMs) / middle((r) => r.wholeMs);
  const megabytes = (figure: number): string => `${(figure / 1e6).toFixed(1)} MB`;
  return (
    `data: second version of ${FOLDERS * FILES_EACH} files with ${CHANGED * 100} % changed: ` +
    `${megabytes(middle((r) => r.copied))} copied, manifest included, ` +
    `rsync -a of the whole ${megabytes(middle((r) => r.whole))}: ratio ${bytes.toFixed(3)}; ` +
    `goal <= ${GOAL_BYTES}: ${bytes <= GOAL_BYTES ? 'met' : 'MISSED'}; ` +
    `${middle((r) => r.copyMs).toFixed(0)} ms, verified, against ` +
    `${middle((r) => r.wholeMs).toFixed(0)} ms: ratio ${time.toFixed(2)} (${rounds.length} ` +
    'rounds in turns)'
  );
}

/** Writes this `share` of the files, different ones in each round; round 0 is the first version. */
async function writeFiles(folder: string, share: number, round: number): Promise<void> {
  const step = Math.round(1 / share);
  for (let d = 0; d < FOLDERS; d++) {
    await mkdir(join(folder, `day-${d}`), { recursive: true });
    for (let i = 0; i < FILES_EACH; i++)
      if ((d * FILES_EACH + i) % step === round % step) {
        const text = `${round} reading ${d} ${i} `;
        await writeFile(
          join(folder, `day-${d}`, `reading-${i}.csv`),
          text.repeat(SIZE / text.length),
        );
      }
  }
}

/** Creates an agent whose control plane serves only tree objects. */
function agentIn(
  dir: string,
  objects: ReadonlyMap<string, string>,
  fetched: { bytes: number },
): Promise<DatasetParts> {
  const call = async (_: string, { body }: { body: { digests: string[] } }): Promise<unknown> => {
    const found = body.digests.map((digest) => [digest, objects.get(digest) ?? ''] as const);
    fetched.bytes += found.reduce((sum, [, text]) => sum + text.length, 0);
    return { objects: Object.fromEntries(found) };
  };
  const root = join(dir, 'svc');
  const log = silentLogger();
  return createDatasetParts({
    client: { call } as unknown as Client,
    storage: createStorage({ root, maxStorage: undefined, inherit: INHERIT, log }),
    listRuns: async () => [],
    listContainers: async () => [],
    log,
    root,
    share: join(dir, 'share'),
    agent: 'bench',
    keepReleases: () => 1,
    keepVersions: 3,
    copiesAtOnce: 1,
    watermarks: { high: 1, low: 1 },
    rsync: { inherit: INHERIT, stallMs: 60_000, timeoutMs: 600_000, bandwidth: undefined },
    onChange: () => undefined,
  });
}

type Version = DatasetSource & { version: number; manifest_digest: string };
const ensure = (data: DatasetParts, version: Version) =>
  data.cache.ensure(
    version,
    { onProgress: () => undefined, logLine: () => undefined },
    new AbortController().signal,
  );

function scannerIn(
  dir: string,
  objects: Map<string, string>,
): (before?: Version) => Promise<Version> {
  const scanner = createScanner({
    stateDir: join(dir, 'state'),
    searchPath: INHERIT.PATH,
    workers: 2,
  });
  return async (before) => {
    const previous =
      before === undefined
        ? null
        : { manifestDigest: before.manifest_digest, files: before.files, bytes: before.bytes };
    const request = {
      datasetId: 'set',
      basePath: join(dir, 'share'),
      nfsPath: 'set',
      full: false,
      previous,
      share: null,
      acceptLoss: false,
    };
    const found = await scanner.scan(request, { signal: new AbortController().signal });
    if (found.kind !== 'changed') throw new Error(`the scan ended ${JSON.stringify(found)}`);
    // Objects of the previous version are not written again.
    const load = async (digest: string): Promise<string> => {
      const text = objects.get(digest) ?? (await found.objects(digest));
      objects.set(digest, text);
      return text;
    };
    for await (const leaf of walkTree(found.manifestDigest, load)) void leaf;
    await found.dispose();
    const { manifestDigest: manifest_digest, files, bytes } = found;
    return {
      dataset_id: 'set',
      name: 'set',
      nfs_path: 'set',
      version: (before?.version ?? 0) + 1,
      manifest_digest,
      files,
      bytes,
    };
  };
}

async function rsyncWhole(from: string, to: string): Promise<number> {
  const said = await run(['rsync', '-a', '--stats', '--no-human-readable', `${from}/`, `${to}/`]);
  await run(['sync', '--file-system', to]);
  return Number(/Total transferred file size: (\d+)/.exec(said)?.[1]);
}

function run([program = '', ...args]: readonly string[]): Promise<string> {
  const child = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...INHERIT, LC_ALL: 'C' },
  });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) =>
      code === 0 ? resolve(said) : reject(new Error(`${program} ended with ${code}`)),
    );
  });
}

async function timed<T>(work: () => Promise<T>): Promise<[ms: number, result: T]> {
  const from = performance.now();
  const result = await work();
  return [performance.now() - from, result];
}
