/** Finds the calls of failPoint() in the text of the sources. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../../..');

export type Call = {
  name: string;
  /** true: the call has a detail, and its points are named `name.detail`. */
  detailed: boolean;
  file: string;
};

export function callsInSources(): Call[] {
  const files = globSync('packages/*/src/**/*.ts', { cwd: ROOT })
    .filter((file) => !file.endsWith('kit/src/fail-point.ts'))
    .toSorted();
  return files.flatMap((file) =>
    [...readFileSync(path.join(ROOT, file), 'utf8').matchAll(/\bfailPoint\('([^']+)'(,)?/g)].map(
      ([, name, comma]) => ({
        name: name ?? '',
        detailed: comma !== undefined,
        file: file.split(path.sep).join('/'),
      }),
    ),
  );
}

export const isPointOf = (point: string, call: Call): boolean =>
  call.detailed ? point.startsWith(`${call.name}.`) : point === call.name;
