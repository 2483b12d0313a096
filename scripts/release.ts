/**
 * npm run release -- VERSION: makes a version. It checks the tree, the number and CHANGELOG.md,
 * writes the number into every file that has it, runs `npm run check` and the slow tests on that,
 * commits, and sets the tag. If a check fails, the files are as before. It pushes nothing.
 */
import { join } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import { BERTH_VERSION } from '../packages/wire/src/version.ts';
import { makeVersion } from './lib/make-version.ts';
import { conclude, gates, suite } from './lib/suites.ts';

/** Tests in both suites can have the number in a text. */
async function check(): Promise<boolean> {
  await gates();
  for (const project of ['unit', 'slow'] as const) await suite(project, [], 'dot');
  conclude();
  return process.exitCode === 0;
}

const version = process.argv[2] ?? '';
try {
  await makeVersion({
    root: join(import.meta.dirname, '..'),
    before: BERTH_VERSION,
    version,
    date: new Date().toISOString().slice(0, 10),
    check,
  });
} catch (error) {
  console.error(`npm run release: ${messageOf(error)}`);
  process.exit(2);
}
console.log(`version ${version} is committed and has the tag v${version}; push both:`);
console.log(`  git push origin HEAD v${version}`);
