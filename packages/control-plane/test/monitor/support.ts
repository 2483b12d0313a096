/**
 * Test helpers: a base path with the folder `ds` of a dataset, its scanner, and stand-ins for
 * `find` that imitate unusual shares.
 */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TreeLeaf, walkTree } from '@berth/wire/tree';
import { afterAll, onTestFinished } from 'vitest';
import type { ScanProgress, ScanRequest, ScanResult } from '../../src/domain/data/scan.ts';
import { createScanner, type ScannerOptions } from '../../src/monitor/scanner.ts';

export const SYSTEM_PATH = '/usr/bin:/bin';

export function scratchFolder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'berth-scan-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/**
 * Compiled code of the scan processes. The tests of a file share it, because each test would
 * compile it again.
 */
const compiled = mkdtempSync(join(tmpdir(), 'berth-compiled-'));
afterAll(() => rmSync(compiled, { recursive: true, force: true }));

/** Makes the folder of a scanner with the shared compiled code. */
export function shareCompiled(stateDir: string): void {
  if (existsSync(stateDir)) return;
  mkdirSync(stateDir, { recursive: true });
  symlinkSync(compiled, join(stateDir, 'compile-cache'));
}

export type Changed = Extract<ScanResult, { kind: 'changed' }>;

/** Like a control plane, begins each scan with the result of the previous one. */
export function monitored(options: Partial<ScannerOptions> = {}) {
  const dir = scratchFolder();
  const [base, stateDir] = [join(dir, 'base'), join(dir, 'state')];
  const folder = join(base, 'ds');
  mkdirSync(folder, { recursive: true });
  shareCompiled(stateDir);
  const scanner = createScanner({ stateDir, searchPath: SYSTEM_PATH, workers: 2, ...options });
  onTestFinished(() => scanner.close());
  const request: ScanRequest = {
    datasetId: 'ds-1',
    basePath: base,
    nfsPath: 'ds',
    full: false,
    previous: null,
    share: null,
    acceptLoss: false,
  };
  const seen: ScanProgress[] = [];
  const look = async (
    asked: Partial<ScanRequest> = {},
    signal = AbortSignal.timeout(60_000),
  ): Promise<ScanResult> => {
    const result = await scanner.scan(
      { ...request, ...asked },
      { signal, onProgress: (progress) => seen.push(progress) },
    );
    if (result.kind === 'changed') onTestFinished(() => result.dispose());
    return result;
  };
  return {
    base,
    folder,
    stateDir,
    scanner,
    request,
    seen,
    /** Scans without recording the result. */
    look,
    async scan(asked: Partial<ScanRequest> = {}): Promise<ScanResult> {
      const result = await look(asked);
      if ('share' in result) request.share = result.share;
      if (result.kind === 'changed') {
        request.previous = {
          manifestDigest: result.manifestDigest,
          files: result.files,
          bytes: result.bytes,
        };
      }
      return result;
    },
    file(name: string | Buffer, content: string | Buffer = 'content'): void {
      writeFileSync(Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(name)]), content);
    },
  };
}
export type Monitored = ReturnType<typeof monitored>;

/** Returns a program that runs one scan and prints the outcome. */
export function scanOnce(
  { stateDir, request }: Monitored,
  options: Partial<ScannerOptions> = {},
): string[] {
  const scanner = join(import.meta.dirname, '../../src/monitor/scanner.ts');
  const all: ScannerOptions = { stateDir, searchPath: SYSTEM_PATH, workers: 1, ...options };
  const script = `
const { createScanner } = await import(${JSON.stringify(scanner)});
const scanner = createScanner(${JSON.stringify(all)});
const result = await scanner.scan(${JSON.stringify(request)}, { signal: new AbortController().signal });
await result.dispose?.();
process.stdout.write(JSON.stringify(result));
await scanner.close();`;
  return [process.execPath, '--input-type=module', '--eval', script];
}

export function changed(result: ScanResult): Changed {
  if (result.kind !== 'changed')
    throw new Error(`expected a change, got ${JSON.stringify(result)}`);
  return result;
}

/** Returns every entry of the scanned state by its encoded path. */
export async function leavesOf(result: ScanResult): Promise<Map<string, TreeLeaf['entry']>> {
  const { manifestDigest, objects } = changed(result);
  const leaves = new Map<string, TreeLeaf['entry']>();
  for await (const { path, entry } of walkTree(manifestDigest, objects)) leaves.set(path, entry);
  return leaves;
}

/**
 * Returns a `searchPath` with a program `find` in front. `script` is JavaScript; `run()` returns
 * the output of the real `find`.
 */
export function standInForFind(script: string): string {
  const dir = scratchFolder();
  const text = `#!${process.execPath}
const { spawnSync } = require('node:child_process');
const { writeSync, writeFileSync, readFileSync } = require('node:fs');
const dir = ${JSON.stringify(dir)};
const run = () => spawnSync('/usr/bin/find', process.argv.slice(2), { maxBuffer: 1e9, stdio: ['ignore', 'pipe', 'inherit'] });
const eachFile = (listing, change) => Buffer.from(listing.toString('latin1').split('\\0').map((record) =>
  record.startsWith('f') ? change(record.split(' ')).join(' ') : record).join('\\0'), 'latin1');
${script}
`;
  writeFileSync(join(dir, 'find'), text);
  chmodSync(join(dir, 'find'), 0o755);
  return `${dir}:${SYSTEM_PATH}`;
}

/** The share's clock is an hour behind, so no file seems to be new. */
export const clockBehind = (): string =>
  standInForFind(`const behind = (time) => String(Number(time.split('.')[0]) - 3600) + '.' + time.split('.')[1];
writeSync(1, eachFile(run().stdout, ([mode, size, mtime, ctime, ...rest]) => [mode, size, behind(mtime), behind(ctime), ...rest]));`);

const sameTimes = (mtime: number, ctime: number): string =>
  standInForFind(
    'writeSync(1, eachFile(run().stdout, ([mode, size, , , ...rest]) => [mode, size, ' +
      `'${mtime}.0000000000', '${ctime}.0000000000', ...rest]));`,
  );

/** The share has no times: only sizes and names show a change. */
export const noTimes = (): string => sameTimes(1000, 1000);

/**
 * Files that were written long ago with dates in the future. As with noTimes(), the times do not
 * show a later write.
 */
export const datedAhead = (): string => sameTimes(4_102_444_800, 1000);

/** The share's times have the precision of a day, so every file seems to be new. */
export const coarseTimes = (): string =>
  standInForFind(
    `const today = String(86400 * Math.ceil(Date.now() / 86400000)) + '.0000000000';
writeSync(1, eachFile(run().stdout, ([mode, size, , , ...rest]) => [mode, size, today, today, ...rest]));`,
  );
