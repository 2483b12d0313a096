// `npm run setup -- --s3`: builds the S3 server of the tests (packages/testbed/s3-server) into
// .tools/versitygw. The whole versitygw takes minutes to compile; this main package imports a part
// of it, and nothing is optimized.
import { mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { root, toolsDir } from './places.mjs';
import { step } from './progress.mjs';
import { childEnvironment, findProgram, lastLines, run } from './run.mjs';

const source = join(root, 'packages', 'testbed', 's3-server');
const target = join(toolsDir, 'versitygw');
const missing = (how) => ({
  part: 'S3 server',
  why: 'is the object storage of the backup tests; without it they are skipped',
  how,
});

export const installedS3Server = () =>
  (process.env.VERSITYGW_BIN ?? '') !== '' || findProgram('versitygw', [toolsDir]) !== undefined;

/** Returns what is missing, or undefined. */
export async function provideS3Server() {
  const go = findProgram('go', ['/usr/local/go/bin']);
  if (go === undefined) return missing('install Go 1.25 or newer, then npm run setup -- --s3');
  return step('building the S3 server of the tests (about a minute)', async () => {
    mkdirSync(toolsDir, { recursive: true });
    const built = `${target}.new`;
    const argv = [go, 'build', '-gcflags=all=-N -l', '-ldflags=-s -w', '-o', built, '.'];
    const done = await run(argv, {
      cwd: source,
      env: childEnvironment({ CGO_ENABLED: '0' }),
      deadlineMs: 20 * 60_000,
      patience: 'compiling',
    });
    if (!done.ok) {
      rmSync(built, { force: true });
      return missing(
        `see why Go failed, then npm run setup -- --s3:\n${lastLines(done.output, 5)}`,
      );
    }
    renameSync(built, target);
    return undefined;
  });
}
