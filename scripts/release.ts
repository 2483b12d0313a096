/**
 * npm run release: makes a version, and the files of a version.
 * - `npm run release -- VERSION` checks the tree, the number and CHANGELOG.md, writes the number
 *   into every file that has it, runs `npm run check` and the slow tests on that, commits, and sets
 *   the tag. If a check fails, the files are as before. It pushes nothing.
 * - `npm run release -- files` makes the files that people download (docs/artefacts.md "A release").
 */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { messageOf } from '@berth/kit/message-of';
import { BERTH_VERSION } from '../packages/wire/src/version.ts';
import { compressionOf } from './lib/artefact/deb.ts';
import { ARCHITECTURES, architectureOf } from './lib/artefact/node.ts';
import { makeVersion } from './lib/make-version.ts';
import { makeReleaseFiles } from './lib/release-files.ts';
import { conclude, gates, suite } from './lib/suites.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    out: { type: 'string', default: 'dist/release' },
    arch: { type: 'string', multiple: true, default: Object.keys(ARCHITECTURES) },
    node: { type: 'string', default: process.env['BERTH_NODE'] ?? 'npm' },
    deb: { type: 'string', default: 'xz' },
    url: { type: 'string' },
    programs: { type: 'string' },
    key: { type: 'string' },
  },
});
const [what = ''] = positionals;
try {
  await (what === 'files' ? files() : version(what));
} catch (error) {
  console.error(`npm run release: ${messageOf(error)}`);
  process.exit(2);
}

async function files(): Promise<void> {
  const { arch, deb, out, node, url = null, programs = null, key = null } = values;
  if (url !== null && !/^https?:\/\/[\w.:/[\]~+-]+$/.test(url))
    throw new Error(
      `--url ${url}: must be an address with https:// (or http:// in a network of your own)`,
    );
  const release = await makeReleaseFiles({
    version: BERTH_VERSION,
    architectures: arch.map(architectureOf),
    compression: compressionOf(deb),
    ...{ out, node, url, programs, key },
  });
  console.log(`${release.out}:`);
  for (const file of release.files) console.log(`  ${file}`);
  for (const what of release.missing) console.log(`missing: ${what}`);
  console.log(
    `try it: sh ${release.out}/install.sh --dry-run --release ${release.out} --base-domain apps.example.org --admin you@example.org`,
  );
}

/** Tests in both suites can have the number in a text. */
async function check(): Promise<boolean> {
  await gates();
  for (const project of ['unit', 'slow'] as const) await suite(project, [], 'dot');
  conclude();
  return process.exitCode === 0;
}

async function version(number: string): Promise<void> {
  await makeVersion({
    root: join(import.meta.dirname, '..'),
    before: BERTH_VERSION,
    version: number,
    date: new Date().toISOString().slice(0, 10),
    check,
  });
  console.log(`version ${number} is committed and has the tag v${number}; push both:`);
  console.log(`  git push origin HEAD v${number}`);
  console.log('then make its files: npm run release -- files --url ADDRESS --key FILE');
}
