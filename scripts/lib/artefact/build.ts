/**
 * Makes the artefact: a folder with programs, their Node, licences and a bill of materials, which
 * needs nothing else of this repository. The same commit and the same Node give the same bytes, in
 * any folder and at any time (docs/artefacts.md "What is reproducible").
 */
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join, relative } from 'node:path';
import type { Metafile } from 'esbuild';
import { buildDashboard } from '../dashboard.ts';
import { root } from '../places.mjs';
import { OLDEST_AGENT } from '../../../packages/wire/src/version.ts';
import { knownSteps } from '../../../packages/control-plane/src/store/backup/upgrade-state.ts';
import { writeLicenses } from './licenses.ts';
import { type Architecture, provideNode } from './node.ts';
import { bundlePrograms } from './programs.ts';
import { output } from './run.ts';
import { writeSbom } from './sbom.ts';
import { writeWhole } from './whole-folder.ts';

/** In the artefact: what it was built from. */
export const BUILD_FILE = 'berth-build.json';
export type Build = {
  version: string;
  commit: string | null;
  source_date_epoch: number;
  arch: Architecture;
  node: { version: string; source: string; sha256: string };
  /** For `berth upgrade --check`: the steps of the database, and the oldest agent that works. */
  schema: { name: string; needed: boolean }[];
  oldest_agent: string;
};
type Built = { out: string; node: string; files: number; bytes: number };

const PROGRAMS = ['bin/berth', 'bin/node'];

/**
 * `out`: a folder that does not exist, is empty, or holds an earlier artefact, which is replaced.
 */
export const buildArtefact = (options: {
  out: string;
  arch: Architecture;
  node: string;
  /** Address of the files of the release, for deploy/install.sh; null: unknown. */
  url?: string | null;
}): Promise<Built> =>
  writeWhole(options.out, { marker: BUILD_FILE, what: 'artefact' }, async (draft, out) => {
    const { commit, epoch } = await source();
    const node = await provideNode(options.node, options.arch);
    mkdirSync(join(draft, 'bin'), { recursive: true });
    const programs = await bundlePrograms(join(draft, 'lib'), options.arch);
    const page = await bundledInDashboard(join(draft, 'dashboard'));
    const metafile = {
      inputs: { ...programs.inputs, ...page.inputs },
      outputs: { ...programs.outputs, ...page.outputs },
    };
    copyFileSync(node.program, join(draft, 'bin/node'));
    copyFileSync(join(root, 'scripts/lib/artefact/berth.sh'), join(draft, 'bin/berth'));
    writeLicenses(join(draft, 'licenses'), metafile, node);
    await writeSbom(join(draft, 'sbom.cdx.json'), metafile, node);
    cpSync(join(root, 'deploy'), join(draft, 'deploy'), { recursive: true });
    cpSync(join(root, 'docs'), join(draft, 'docs'), {
      recursive: true,
      filter: (path) => !path.endsWith('.png'),
    });
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
      version: string;
    };
    writeFileSync(
      join(draft, 'deploy/install.sh'),
      installScript({ version, url: options.url ?? null }),
    );
    const build: Build = {
      version,
      commit,
      source_date_epoch: epoch,
      arch: options.arch,
      node: { version: node.version, source: node.source, sha256: node.sha256 },
      schema: knownSteps('sqlite'),
      oldest_agent: OLDEST_AGENT,
    };
    writeFileSync(join(draft, BUILD_FILE), `${JSON.stringify(build, null, 2)}\n`);
    const files = filesIn(draft);
    writeSums(draft, files);
    settle(draft, epoch, PROGRAMS);
    const bytes = files.reduce((sum, file) => sum + lstatSync(join(draft, file)).size, 0);
    return { out, node: node.version, files: files.length, bytes };
  });

/** Returns deploy/install.sh with its version, and where its release is. */
export function installScript({ version, url }: { version: string; url: string | null }): string {
  const text = readFileSync(join(root, 'deploy/install.sh'), 'utf8').replace('@VERSION@', version);
  return url === null ? text : text.replace('@RELEASE@', url.replace(/\/+$/, ''));
}

/**
 * Builds the dashboard. @returns what it is made of, in the shape that esbuild gives for the
 * programs
 */
async function bundledInDashboard(folder: string): Promise<Metafile> {
  await buildDashboard(folder);
  const list = join(folder, 'inputs.json');
  const files = JSON.parse(readFileSync(list, 'utf8')) as string[];
  rmSync(list);
  const each = <T>(value: T): Record<string, T> =>
    Object.fromEntries(files.map((file) => [file, value]));
  const output = { bytes: 0, inputs: each({ bytesInOutput: 1 }), imports: [], exports: [] };
  return { inputs: each({ bytes: 1, imports: [] }), outputs: { 'dashboard/index.html': output } };
}

/** The commit and its time. A tree with changes has the commit of its last one, with `-dirty`. */
async function source(): Promise<{ commit: string | null; epoch: number }> {
  const git = (...args: string[]): Promise<string> =>
    output(['git', '-c', 'safe.directory=*', '-C', root, ...args]).then((text) => text.trim());
  const given = { commit: process.env['BERTH_COMMIT'], epoch: process.env['SOURCE_DATE_EPOCH'] };
  const epoch = given.epoch ?? (await git('log', '-1', '--format=%ct').catch(() => ''));
  if (!/^\d{1,11}$/.test(epoch))
    throw new Error(
      'the time of the commit is unknown (no git here): set SOURCE_DATE_EPOCH to seconds since ' +
        '1970, and BERTH_COMMIT',
    );
  if (given.commit !== undefined) return { commit: given.commit, epoch: Number(epoch) };
  const head = await git('rev-parse', 'HEAD').catch(() => null);
  const changed =
    head !== null && (await git('status', '--porcelain', '--untracked-files=no')) !== '';
  return {
    commit: head === null ? null : `${head}${changed ? '-dirty' : ''}`,
    epoch: Number(epoch),
  };
}

/** @returns the files below a folder, relative to it, in order */
export function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .toSorted();
}

/** In an artefact and in a release: the checksum of each other file. */
export const SUMS = 'SHA256SUMS';
export const writeSums = (folder: string, files: readonly string[]): void =>
  writeFileSync(
    join(folder, SUMS),
    files.map((file) => `${sha256(join(folder, file))}  ${file}\n`).join(''),
  );

const sha256 = (path: string): string =>
  createHash('sha256').update(readFileSync(path)).digest('hex');

/**
 * Sets modes and times, which the umask and the clock of this machine would otherwise decide.
 * `programs`: relative paths.
 */
export function settle(folder: string, epoch: number, programs: readonly string[]): void {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isSymbolicLink())
      chmodSync(
        path,
        entry.isDirectory() || programs.includes(relative(folder, path)) ? 0o755 : 0o644,
      );
    lutimesSync(path, epoch, epoch);
  }
  chmodSync(folder, 0o755);
  lutimesSync(folder, epoch, epoch);
}
