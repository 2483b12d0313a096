/**
 * Set-up of the tests that start our programs: bundles them into .tools/programs, from where the
 * testbed starts them. From its sources a control plane needs 1.1 s of CPU time to start, from the
 * bundle 0.3 s, and the tests start hundreds of programs.
 */
import { createHash } from 'node:crypto';
import {
  globSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import { ARCHITECTURES, hostArchitecture, type Architecture } from './artefact/node.ts';
import { bundlePrograms } from './artefact/programs.ts';
import { root, toolsDir } from './places.mjs';

const folder = join(toolsDir, 'programs');
const SOURCES = [
  'package-lock.json',
  'bin/*',
  'scripts/lib/{bundle.mjs,typebox-light.mjs,test-programs.ts}',
  'scripts/lib/artefact/*',
  'packages/{agent,cli,control-plane,gateway,kit,operator,proxy,relay,wire}/src/**/*.ts',
];

/** Not the launcher of an artefact: that one has a dashboard and a commit of its own. */
const LAUNCHER = `import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { answersWithoutProgram, launch } from '../lib/launch.mjs';

const path = (name) => join(import.meta.dirname, '..', 'lib', name);
const place = {
  processEntry: (name) => (existsSync(path(\`\${name}.js\`)) ? path(\`\${name}.js\`) : undefined),
  commandEntry: (name) => path(\`\${name}.js\`),
  commandLine: () => ({ path: path('cli/main.js') }),
};
const args = process.argv.slice(2);
if (!answersWithoutProgram(args, place)) await launch(args, place);
`;

/** Differs after each change of a source, and in each checkout. */
function stampOfSources(): string {
  const hash = createHash('sha256');
  for (const file of globSync(SOURCES, { cwd: root }).toSorted()) {
    const { size, mtimeMs } = statSync(join(root, file));
    hash.update(`${file} ${size} ${mtimeMs}\n`);
  }
  return hash.digest('hex');
}

function stampOfPrograms(): string | undefined {
  try {
    return readFileSync(join(folder, 'stamp'), 'utf8');
  } catch {
    return undefined;
  }
}

function architecture(): Architecture {
  const name = hostArchitecture();
  const isKnown = (one: string): one is Architecture => Object.hasOwn(ARCHITECTURES, one);
  if (!isKnown(name)) throw new Error(`there is no bundle for ${name}`);
  return name;
}

/** Vitest calls it once before the files of a project (vitest.config.ts). */
export async function setup(): Promise<void> {
  const stamp = stampOfSources();
  if (stampOfPrograms() !== stamp) {
    const draft = `${folder}-${process.pid}`;
    try {
      await bundlePrograms(join(draft, 'lib'), architecture(), {
        proxy: 'packages/proxy/src/main.ts',
      });
      mkdirSync(join(draft, 'bin'));
      writeFileSync(join(draft, 'bin', 'berth'), LAUNCHER);
      writeFileSync(join(draft, 'package.json'), '{ "type": "module" }\n');
      writeFileSync(join(draft, 'stamp'), stamp);
      rmSync(folder, { recursive: true, force: true });
      renameSync(draft, folder);
    } catch (error) {
      rmSync(draft, { recursive: true, force: true });
      console.warn(`the programs start from their sources: ${messageOf(error)}`);
      return;
    }
  }
  process.env['BERTH_TEST_PROGRAMS'] = folder;
}
