/**
 * Makes the Debian package from an artefact: the programs in /usr/lib/berth, systemd units,
 * maintainer scripts (deploy/debian). The same artefact gives the same bytes.
 */
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { root } from '../places.mjs';
import { BUILD_FILE, type Build, filesIn, settle } from './build.ts';
import { output } from './run.ts';
import { packagedUnits } from './units.ts';

/** The folder of the programs on a machine with the package. */
export const INSTALLED = '/usr/lib/berth';
const COMPRESSIONS = ['xz', 'gzip', 'none'] as const;
export type Compression = (typeof COMPRESSIONS)[number];
/** Checks the value of the option `--deb`. */
export function compressionOf(text: string): Compression {
  const compression = COMPRESSIONS.find((name) => name === text);
  if (compression !== undefined) return compression;
  throw new Error(`--deb ${text}: must be ${COMPRESSIONS.join(', ')}`);
}

const SCRIPTS = ['postinst', 'prerm', 'postrm'];
/**
 * These files are in other places of the package, or dpkg has its own. `berth install` reads the
 * rest of deploy/.
 */
const ELSEWHERE = ['docs', 'deploy/debian', 'deploy/systemd', 'SHA256SUMS'];

/** @returns the path of the package, beside the artefact */
export async function buildDeb(artefact: string, compression: Compression = 'xz'): Promise<string> {
  const build = JSON.parse(readFileSync(join(artefact, BUILD_FILE), 'utf8')) as Build;
  const tree = mkdtempSync(join(tmpdir(), 'berth-deb-'));
  const write = (path: string, text: string | Uint8Array): void => {
    mkdirSync(dirname(join(tree, path)), { recursive: true });
    writeFileSync(join(tree, path), text);
  };
  try {
    cpSync(artefact, join(tree, INSTALLED), { recursive: true });
    for (const name of ELSEWHERE)
      rmSync(join(tree, INSTALLED, name), { recursive: true, force: true });
    mkdirSync(join(tree, 'usr/bin'));
    symlinkSync('../lib/berth/bin/berth', join(tree, 'usr/bin/berth'));
    for (const [name, text] of packagedUnits()) write(`usr/lib/systemd/system/${name}`, text);
    for (const name of ['docs', 'deploy/traefik', 'deploy/registry'])
      cpSync(join(artefact, name), join(tree, 'usr/share/doc/berth', name), { recursive: true });
    write('usr/share/doc/berth/copyright', copyright());
    write('usr/share/doc/berth/changelog.gz', gzipSync(changelog(build), { level: 9 }));
    write(
      'usr/share/lintian/overrides/berth',
      readFileSync(join(root, 'deploy/debian/lintian-overrides')),
    );
    const files = filesIn(tree);
    const bytes = files.reduce((sum, file) => sum + readFileSync(join(tree, file)).byteLength, 0);
    write('DEBIAN/control', control(build, Math.ceil(bytes / 1024)));
    write('DEBIAN/md5sums', await output(['md5sum', ...files], { cwd: tree }));
    for (const name of SCRIPTS)
      write(`DEBIAN/${name}`, readFileSync(join(root, 'deploy/debian', name)));
    settle(tree, build.source_date_epoch, [
      ...SCRIPTS.map((name) => `DEBIAN/${name}`),
      ...['berth', 'node'].map((name) => join(INSTALLED, 'bin', name).slice(1)),
    ]);
    const target = join(dirname(artefact), `berth_${build.version}_${build.arch}.deb`);
    await output(
      [
        'dpkg-deb',
        '--root-owner-group',
        '--uniform-compression',
        `-Z${compression}`,
        '--build',
        tree,
        target,
      ],
      {
        env: {
          ...process.env,
          SOURCE_DATE_EPOCH: String(build.source_date_epoch),
          LC_ALL: 'C.UTF-8',
        },
      },
    );
    return target;
  } finally {
    rmSync(tree, { recursive: true, force: true });
  }
}

/** `berth upgrade --check` reads Berth-Build, which saves it from unpacking the package. */
const control = (build: Build, kilobytes: number): string => `Package: berth
Version: ${build.version}
Architecture: ${build.arch}
Maintainer: Berth <berth@localhost>
Installed-Size: ${kilobytes}
Depends: adduser, ca-certificates, init-system-helpers (>= 1.52), libc6 (>= 2.34), libstdc++6 (>= 5.2)
Recommends: git, openssh-client, rsync
Suggests: docker.io, docker-registry, postgresql-client
Section: admin
Priority: optional
Berth-Build: ${JSON.stringify({ commit: build.commit, schema: build.schema, oldest_agent: build.oldest_agent })}
Description: self-hosted deployment platform
 Berth builds a git repository into a container image, runs it on one of your
 machines and publishes it through a reverse proxy.
 .
 The package contains the control plane, the gateway, the relay, the agent and
 the command line, with their own Node.js ${build.node.version}.
`;

const copyright = (): string => `Berth: MIT licence.

${readFileSync(join(root, 'LICENSE'), 'utf8').trim()}

The programs in ${INSTALLED} contain other works: Node.js, SQLite, Swagger UI and packages of the npm registry.
${INSTALLED}/licenses has the licence of each of them, ${INSTALLED}/sbom.cdx.json the list with versions.
`;

function changelog({ version, source_date_epoch: epoch, commit }: Build): string {
  const date = new Date(epoch * 1000).toUTCString().replace('GMT', '+0000');
  return (
    `berth (${version}) unstable; urgency=medium\n\n  * Built from commit ` +
    `${commit ?? 'unknown'}.\n\n -- Berth <berth@localhost>  ${date}\n`
  );
}
