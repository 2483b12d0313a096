/**
 * Scans by the real scanner against plain tools, in one run: an unchanged folder of 100,000 files
 * against `find -printf`, and the first scan of large files against `sha256sum`. Both run in turns,
 * so that other load on the machine affects both. Measured by wall clock and by the CPU time of all
 * processes, because a busy machine changes only the first.
 */
import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { link, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { createScanner } from '@berth/control-plane/monitor/scanner';
import type { ScanRequest, ScanResult } from '@berth/control-plane/domain/data/scan';
import { statOf } from '@berth/testbed/process';
import { childrenOf } from '@berth/testbed/process-tree';
import { summary } from './stats.ts';

const [FOLDERS, FILES_EACH, SMALL] = [100, 1000, 1000];
const LARGE = 32 * 1024 * 1024;
/**
 * Each file has several names, so that the page cache of an ordinary machine holds them all and the
 * start of a process is negligible.
 */
const [LARGE_FILES, NAMES_EACH] = [32, 16];
const [RESCANS, FIRST_SCANS] = [15, 3];
const GOAL_RESCAN = 1.5;
const GOAL_CORE = 3.5;
/** Priority of the scanner; the tools run at the same. */
const NICE = '10';
const FIELDS = 'f%m %s %T@ %C@ %i %P\\0';
/** Age from which a file is not hashed again for being written around the time of the scan. */
const SETTLED_MS = 5_500;

export async function benchDataScan(): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), 'berth-bench-scan-'));
  try {
    await writeSmall(join(dir, 'small'));
    await writeLarge(join(dir, 'large'));
    return [...(await rescan(dir)), ...(await firstScan(dir))];
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

async function writeSmall(dir: string): Promise<void> {
  for (let d = 0; d < FOLDERS; d++) {
    await mkdir(join(dir, `day-${d}`), { recursive: true });
    const names = Array.from({ length: FILES_EACH }, (_, i) =>
      join(dir, `day-${d}`, `reading-${d}-${i}.csv`),
    );
    await Promise.all(names.map((name) => writeFile(name, name.repeat(SMALL / name.length))));
  }
}

async function writeLarge(dir: string): Promise<void> {
  await mkdir(dir);
  for (let i = 0; i < LARGE_FILES; i++) {
    await writeFile(join(dir, `block-${i}-0`), Buffer.alloc(LARGE, `block ${i} `));
    for (let n = 1; n < NAMES_EACH; n++)
      await link(join(dir, `block-${i}-0`), join(dir, `block-${i}-${n}`));
  }
}

async function rescan(dir: string): Promise<string[]> {
  const scanner = scannerIn(dir, 'rescan', availableParallelism());
  await setTimeout(SETTLED_MS);
  const first = changed(await scanner.scan(requestOf(dir, 'small'), alone));
  await first.dispose();
  const request = { ...requestOf(dir, 'small'), previous: first };
  const find = ['nice', '-n', NICE, 'find', join(dir, 'small'), '-printf', FIELDS];
  const rounds: { find: Cost; scan: Cost }[] = [];
  for (let i = 0; i < RESCANS; i++) {
    const tool = await costOf(() => run(find));
    const scan = await costOf(async () => {
      const { kind } = await scanner.scan(request, alone);
      if (kind !== 'unchanged')
        throw new Error(`the scan of an unchanged folder ended with: ${kind}`);
    });
    rounds.push({ find: tool, scan });
  }
  await scanner.close();
  const middle = (figure: (round: (typeof rounds)[number]) => number): number =>
    summary(rounds.map(figure)).p50;
  const wall = middle((r) => r.scan.wallMs) / middle((r) => r.find.wallMs);
  const cpu = middle((r) => r.scan.cpuMs) / middle((r) => r.find.cpuMs);
  const files = FOLDERS * FILES_EACH;
  return [
    `data: unchanged rescan of ${files} files ${middle((r) => r.scan.wallMs).toFixed(0)} ms, ` +
      `find -printf ${middle((r) => r.find.wallMs).toFixed(0)} ms (${RESCANS} rounds in turns): ` +
      `ratio ${wall.toFixed(2)} by the wall clock, ${cpu.toFixed(2)} by CPU time; goal <= ` +
      `${GOAL_RESCAN}: ${judge(wall <= GOAL_RESCAN)}, ${judge(cpu <= GOAL_RESCAN)}`,
  ];
}

async function firstScan(dir: string): Promise<string[]> {
  const cores = availableParallelism();
  const bytes = LARGE_FILES * NAMES_EACH * LARGE;
  const sha256sum = [
    'nice',
    '-n',
    NICE,
    'sha256sum',
    ...readdirSync(join(dir, 'large')).map((name) => join(dir, 'large', name)),
  ];
  const rounds: { tool: Cost; one: Cost; all: Cost }[] = [];
  for (let i = 0; i < FIRST_SCANS; i++) {
    const tool = await costOf(() => run(sha256sum));
    const scan = async (workers: number): Promise<Cost> => {
      const request = { ...requestOf(dir, 'large'), datasetId: `first-${i}-${workers}` };
      const scanner = scannerIn(dir, 'first', workers);
      const cost = await costOf(async () => changed(await scanner.scan(request, alone)).dispose());
      await scanner.close();
      return cost;
    };
    rounds.push({ tool, one: await scan(1), all: await scan(cores) });
  }
  const middle = (figure: (round: (typeof rounds)[number]) => number): number =>
    summary(rounds.map(figure)).p50;
  const rate = (ms: number): string => `${Math.round(bytes / 1e6 / (ms / 1e3))} MB/s`;
  const core = middle((r) => r.tool.cpuMs / r.one.cpuMs);
  const wall = middle((r) => r.tool.wallMs / r.one.wallMs);
  const scaling = middle((r) => r.one.wallMs / r.all.wallMs);
  return [
    `data: first scan of ${bytes / 2 ** 20} MiB, by CPU time ` +
      `${rate(middle((r) => r.one.cpuMs))} a core, sha256sum ` +
      `${rate(middle((r) => r.tool.cpuMs))}: ratio ${core.toFixed(2)}; goal >= ${GOAL_CORE}: ` +
      `${judge(core >= GOAL_CORE)} (by the wall clock with one thread ${wall.toFixed(2)})`,
    `data: first scan with ${cores} threads ${rate(middle((r) => r.all.wallMs))}, with one ` +
      `${rate(middle((r) => r.one.wallMs))}: ${scaling.toFixed(2)} times; ` +
      `${middle((r) => r.tool.wallMs / r.all.wallMs).toFixed(2)} times sha256sum, all by the ` +
      'wall clock',
  ];
}

const judge = (met: boolean): string => (met ? 'met' : 'MISSED');
const alone = { signal: new AbortController().signal };
const scannerIn = (dir: string, name: string, workers: number) =>
  createScanner({ stateDir: join(dir, `state-${name}`), searchPath: '/usr/bin:/bin', workers });
const requestOf = (dir: string, folder: string): ScanRequest => ({
  datasetId: folder,
  basePath: dir,
  nfsPath: folder,
  full: false,
  previous: null,
  share: null,
  acceptLoss: false,
});

function changed(result: ScanResult): Extract<ScanResult, { kind: 'changed' }> {
  if (result.kind !== 'changed') throw new Error(`the first scan ended ${JSON.stringify(result)}`);
  return result;
}

function run([program = '', ...args]: readonly string[]): Promise<void> {
  const child = spawn(program, args, {
    stdio: 'ignore',
    env: { PATH: '/usr/bin:/bin', LC_ALL: 'C' },
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`${program} ended with ${code}`)),
    );
  });
}

type Cost = { wallMs: number; cpuMs: number };

/**
 * CPU time of this process and all children. The wall clock stops when `work` is done, not when the
 * children are gone.
 */
async function costOf(work: () => Promise<void>): Promise<Cost> {
  const [own, children, at] = [process.cpuUsage(), childrenMs(), performance.now()];
  await work();
  const wallMs = performance.now() - at;
  const { user, system } = process.cpuUsage(own);
  return { wallMs, cpuMs: (user + system) / 1e3 + childrenMs() - children };
}

/**
 * CPU time of ended and running children, with that of their own ended children; proc_pid_stat(5),
 * in ticks of 10 ms.
 */
function childrenMs(): number {
  const [, , ...ended] = ticksOf(process.pid);
  return (
    [...ended, ...childrenOf(process.pid).flatMap(ticksOf)].reduce((sum, ticks) => sum + ticks, 0) *
    10
  );
}

/** Ticks in the program and in the kernel, and both of its ended children. */
const ticksOf = (pid: number): number[] => statOf(pid).slice(11, 15).map(Number);
