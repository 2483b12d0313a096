/**
 * Licences of everything in the artefact: one folder for each package, with the files that the
 * package brings.
 */
import { copyFileSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Metafile } from 'esbuild';
import { root } from '../places.mjs';
import type { NodeProgram } from './node.ts';

const LICENSE_FILE = /^(licen[cs]e|copying|notice|unlicense)([.-].*)?$/i;

type Manifest = {
  name: string;
  version: string;
  license?: string;
  author?: string | { name?: string };
};

/**
 * @returns the packages of which the bundles contain code, as folders relative to the repository
 */
export function bundledPackages({ outputs }: Metafile): string[] {
  const files = Object.values(outputs).flatMap(({ inputs }) => Object.keys(inputs));
  const folders = files.map((path) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]);
  return [...new Set(folders.filter((folder) => folder !== undefined))].toSorted();
}

export function writeLicenses(target: string, metafile: Metafile, node: NodeProgram): void {
  const place = (name: string): string => {
    mkdirSync(join(target, name), { recursive: true });
    return join(target, name);
  };
  copyFileSync(join(root, 'LICENSE'), join(place('berth'), 'LICENSE'));
  copyFileSync(node.license, join(place(`node@${node.version}`), 'LICENSE'));
  const sqlite = readFileSync(
    join(root, 'node_modules/better-sqlite3/deps/sqlite3/sqlite3.h'),
    'utf8',
  );
  writeFileSync(join(place(`sqlite@${sqliteVersion()}`), 'LICENSE'), dedicationIn(sqlite));
  // The compiled page at /docs contains it. Its package is not installed, only its result.
  copyFileSync(
    join(root, 'scripts/lib/artefact/Apache-2.0.txt'),
    join(place(`swagger-ui@${swaggerUiVersion()}`), 'LICENSE'),
  );
  for (const folder of bundledPackages(metafile)) {
    const manifest = JSON.parse(
      readFileSync(join(root, folder, 'package.json'), 'utf8'),
    ) as Manifest;
    const files = globSync('*', { cwd: join(root, folder) }).filter((name) =>
      LICENSE_FILE.test(name),
    );
    const own = place(`${manifest.name}@${manifest.version}`);
    for (const name of files) copyFileSync(join(root, folder, name), join(own, name));
    if (files.length === 0) writeFileSync(join(own, 'LICENSE'), licenseByName(manifest));
  }
}

/** Some packages name their licence and leave its text out. */
function licenseByName({ name, license, author }: Manifest): string {
  if (license === undefined)
    throw new Error(`the package ${name} has no licence: it cannot be part of an artefact`);
  const by = typeof author === 'string' ? author : author?.name;
  return (
    `The package ${name} brings no text of its licence. Its package.json says: ` +
    `${license}${by === undefined ? '' : `, ${by}`}.\n`
  );
}

export const sqliteVersion = (): string => {
  const header = readFileSync(
    join(root, 'node_modules/better-sqlite3/deps/sqlite3/sqlite3.h'),
    'utf8',
  );
  return /^#define SQLITE_VERSION\s+"([\d.]+)"/m.exec(header)?.[1] ?? 'unknown';
};

export const swaggerUiVersion = (): string => {
  const file = join(root, 'node_modules/@fastify/swagger-ui/package.json');
  const { devDependencies = {} } = JSON.parse(readFileSync(file, 'utf8')) as {
    devDependencies?: Record<string, string>;
  };
  return devDependencies['swagger-ui-dist'] ?? 'unknown';
};

/** The public-domain dedication at the head of SQLite's own header. */
function dedicationIn(header: string): string {
  const text = /\*\* The author disclaims copyright[^]*?taking more than you give\./.exec(
    header,
  )?.[0];
  if (text === undefined)
    throw new Error(
      'sqlite3.h has no dedication to the public domain any more: look at its licence',
    );
  return `${text.replaceAll(/^\*\* ?/gm, '').trim()}\n`;
}
