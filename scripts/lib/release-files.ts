/**
 * Makes the files of a release (docs/artefacts.md "A release"): packages, the command line as one
 * file, the programs that the installation needs, bills of materials, notes, checksums, and a
 * signature.
 */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { buildArtefact, installScript, SUMS, writeSums } from './artefact/build.ts';
import { buildDeb, type Compression } from './artefact/deb.ts';
import { type Architecture, hostArchitecture } from './artefact/node.ts';
import { output } from './artefact/run.ts';
import { bundleCommandLineFile } from './bundle.mjs';
import { writeWhole } from './artefact/whole-folder.ts';
import { pluginsDir, root, toolsDir } from './places.mjs';
import { notesOf } from './release.ts';

export type ReleaseOptions = {
  version: string;
  /** A folder that does not exist, is empty, or holds an earlier release, which is replaced. */
  out: string;
  architectures: readonly Architecture[];
  /** Source of Node.js (artefact/node.ts). */
  node: string;
  compression: Compression;
  /** Address at which the files are published; null: people give it to install.sh. */
  url: string | null;
  /** Folder with `traefik_VERSION_linux_ARCH` and `docker-buildx_VERSION_linux_ARCH`. */
  programs: string | null;
  /** Private key of OpenSSH that signs SHA256SUMS; null: no signature. */
  key: string | null;
};
export type Release = {
  out: string;
  files: string[];
  /** Things that the release lacks, as a sentence each. */
  missing: string[];
};

/** Namespace of the signature: it counts for nothing else. */
const SIGNED_AS = 'berth-release';
const PROGRAMS = ['traefik', 'docker-buildx'] as const;
type Program = (typeof PROGRAMS)[number];

export const makeReleaseFiles = (options: ReleaseOptions): Promise<Release> =>
  writeWhole(options.out, { marker: SUMS, what: 'release' }, async (draft, out) => {
    mkdirSync(draft, { recursive: true });
    const missing: string[] = [];
    for (const arch of options.architectures) {
      await addPackage(draft, arch, options);
      for (const program of PROGRAMS) {
        const problem = await addProgram(draft, { program, arch }, options.programs);
        if (problem !== null) missing.push(problem);
      }
    }
    writeFileSync(join(draft, 'LICENSES.txt'), licensesOfPrograms());
    const commandLine = join(draft, `berth-cli_${options.version}.js`);
    await bundleCommandLineFile(commandLine);
    chmodSync(commandLine, 0o755);
    writeFileSync(join(draft, 'install.sh'), installScript(options), { mode: 0o755 });
    const changelog = readFileSync(join(root, 'CHANGELOG.md'), 'utf8');
    writeFileSync(join(draft, 'NOTES.md'), notesOf(changelog, options.version));
    writeSums(draft, readdirSync(draft).toSorted());
    if (options.key === null) missing.push('a signature: name a key of OpenSSH with --key FILE');
    else await sign(join(draft, SUMS), options.key);
    if (options.url === null)
      missing.push(
        'an address in install.sh: people give it with --release, or name it with --url',
      );
    return { out, files: readdirSync(draft).toSorted(), missing };
  });

async function addPackage(
  draft: string,
  arch: Architecture,
  { node, compression, url }: ReleaseOptions,
): Promise<void> {
  const artefact = join(draft, arch);
  await buildArtefact({ out: artefact, arch, node, url });
  const deb = await buildDeb(artefact, compression);
  const bill = basename(deb).replace(/\.deb$/, '.cdx.json');
  copyFileSync(join(artefact, 'sbom.cdx.json'), join(draft, bill));
  rmSync(artefact, { recursive: true });
}

/** Returns what is missing, or null. */
async function addProgram(
  draft: string,
  { program, arch }: { program: Program; arch: Architecture },
  folder: string | null,
): Promise<string | null> {
  const pattern = new RegExp(`^${program}_\\d+\\.\\d+\\.\\d+_linux_${arch}$`);
  const named =
    folder === null ? undefined : readdirSync(folder).find((file) => pattern.test(file));
  const own = arch === hostArchitecture() ? await ownProgram(program) : null;
  if (folder !== null && named !== undefined) copyTo(join(folder, named), join(draft, named));
  else if (own !== null) copyTo(own.path, join(draft, `${program}_${own.version}_linux_${arch}`));
  else
    return `${program} for ${arch}: put ${program}_VERSION_linux_${arch} into a folder, and name it with --programs`;
  return null;
}

function copyTo(from: string, to: string): void {
  copyFileSync(from, to);
  chmodSync(to, 0o755);
}

/** Returns the program that `npm run setup` provided on this machine. */
async function ownProgram(program: Program): Promise<{ path: string; version: string } | null> {
  const path = join(program === 'traefik' ? toolsDir : pluginsDir, program);
  if (!existsSync(path)) return null;
  const [version] = /\d+\.\d+\.\d+/.exec(await output([path, 'version'])) ?? [];
  return version === undefined ? null : { path, version };
}

/** Licences of the programs that the release passes on unchanged. */
function licensesOfPrograms(): string {
  const text = (name: string): string =>
    readFileSync(join(root, 'scripts/lib/artefact', name), 'utf8');
  return [
    `traefik (github.com/traefik/traefik)\n\n${text('traefik-license.txt')}`,
    `docker-buildx (github.com/docker/buildx)\n\n${text('Apache-2.0.txt')}`,
  ].join(`\n${'-'.repeat(78)}\n\n`);
}

async function sign(file: string, key: string): Promise<void> {
  await output(['ssh-keygen', '-q', '-Y', 'sign', '-f', key, '-n', SIGNED_AS, file]);
}
