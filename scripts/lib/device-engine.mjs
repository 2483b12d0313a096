// `npm run setup -- --devices`: builds a container engine that knows the Container Device Interface
// (dockerd and runc, by Go) into .tools/device-engine. Debian's engine is older and has no devices.
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { toolsDir } from './places.mjs';
import { step } from './progress.mjs';
import { childEnvironment, findProgram, lastLines, run } from './run.mjs';

const folder = join(toolsDir, 'device-engine');
/** `cgo`: runc enters namespaces in C. */
const PROGRAMS = [
  { source: 'github.com/moby/moby/v2/cmd/dockerd@v2.0.0-beta.24', cgo: '0' },
  { source: 'github.com/opencontainers/runc@v1.2.6', cgo: '1' },
];
const missing = (how) => ({
  part: 'engine with devices',
  why: 'is the engine of the tests of devices; without it they are skipped',
  how,
});

export const installedDeviceEngine = () =>
  ['dockerd', 'runc'].every((program) => existsSync(join(folder, program)));

/** Returns what is missing, or undefined. */
export async function provideDeviceEngine() {
  const go = findProgram('go', ['/usr/local/go/bin']);
  if (go === undefined) return missing('install Go 1.25 or newer, then npm run setup -- --devices');
  return step('building an engine with devices (about four minutes)', async () => {
    const built = `${folder}.new`;
    rmSync(built, { recursive: true, force: true });
    mkdirSync(built, { recursive: true });
    for (const { source, cgo } of PROGRAMS) {
      const done = await run([go, 'install', source], {
        env: childEnvironment({ CGO_ENABLED: cgo, GOBIN: built }),
        deadlineMs: 30 * 60_000,
        patience: `compiling ${source}`,
      });
      if (!done.ok) {
        rmSync(built, { recursive: true, force: true });
        return missing(
          `see why Go failed, then npm run setup -- --devices:\n${lastLines(done.output, 5)}`,
        );
      }
    }
    rmSync(folder, { recursive: true, force: true });
    renameSync(built, folder);
    return undefined;
  });
}
