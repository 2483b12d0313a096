/** A base path with a dataset's folder `ds` in it, a scanner over it, and stand-ins for `find` that show a share's oddities. */
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TreeLeaf, walkTree } from '@berth/wire/tree';
import { onTestFinished } from 'vitest';
import type { ScanProgress, ScanRequest, ScanResult } from '../../src/domain/scan.ts';
import { createScanner, type ScannerOptions } from '../../src/monitor/scanner.ts';

export const SYSTEM_PATH = '/usr/bin:/bin';

export function scratchFolder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'berth-scan-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

export type Changed = Extract<ScanResult, { kind: 'changed' }>;

/** Goes on as a control plane does: what a scan found is what the next one starts from. */
export function monitored(options: Partial<ScannerOptions> = {}) {
  const dir = scratchFolder();
  const [base, stateDir] = [join(dir, 'base'), join(dir, 'state')];
  const folder = join(base, 'ds');
  mkdirSync(folder, { recursive: true });
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
  const look = async (asked: Partial<ScanRequest> = {}, signal = AbortSignal.timeout(60_000)): Promise<ScanResult> => {
    const result = await scanner.scan({ ...request, ...asked }, { signal, onProgress: (progress) => seen.push(progress) });
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
    /** Records nothing. */
    look,
    async scan(asked: Partial<ScanRequest> = {}): Promise<ScanResult> {
      const result = await look(asked);
      if ('share' in result) request.share = result.share;
      if (result.kind === 'changed') {
        request.previous = { manifestDigest: result.manifestDigest, files: result.files, bytes: result.bytes };
      }
      return result;
    },
    file(name: string | Buffer, content: string | Buffer = 'content'): void {
      writeFileSync(Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(name)]), content);
    },
  };
}
export type Monitored = ReturnType<typeof monitored>;

/** The scan as a program of its own, which prints the outcome. */
export function scanOnce({ stateDir, request }: Monitored, options: Partial<ScannerOptions> = {}): string[] {
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
  if (result.kind !== 'changed') throw new Error(`expected a change, got ${JSON.stringify(result)}`);
  return result;
}

/** Everything in the state that was found, by encoded path. */
export async function leavesOf(result: ScanResult): Promise<Map<string, TreeLeaf['entry']>> {
  const { manifestDigest, objects } = changed(result);
  const leaves = new Map<string, TreeLeaf['entry']>();
  for await (const { path, entry } of walkTree(manifestDigest, objects)) leaves.set(path, entry);
  return leaves;
}

/** A program `find` in a folder for `searchPath`; `script` is JavaScript with `real` (Buffer of what the real one writes). */
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

/** The share's clock is an hour behind: nothing on it looks as if it had just been written. */
export const clockBehind = (): string =>
  standInForFind(`const behind = (time) => String(Number(time.split('.')[0]) - 3600) + '.' + time.split('.')[1];
writeSync(1, eachFile(run().stdout, ([mode, size, mtime, ctime, ...rest]) => [mode, size, behind(mtime), behind(ctime), ...rest]));`);

const sameTimes = (mtime: number, ctime: number): string =>
  standInForFind(
    `writeSync(1, eachFile(run().stdout, ([mode, size, , , ...rest]) => [mode, size, '${mtime}.0000000000', '${ctime}.0000000000', ...rest]));`,
  );

/** The share has no times at all: only sizes and names tell. */
export const noTimes = (): string => sameTimes(1000, 1000);

/** Files that were written long ago with dates in the future. As with noTimes(), the times do not show a later write. */
export const datedAhead = (): string => sameTimes(4_102_444_800, 1000);

/** Time stamps of a whole day, as of now and the future: everything was written just now. */
export const coarseTimes = (): string =>
  standInForFind(
    `const today = String(86400 * Math.ceil(Date.now() / 86400000)) + '.0000000000';
writeSync(1, eachFile(run().stdout, ([mode, size, , , ...rest]) => [mode, size, today, today, ...rest]));`,
  );
