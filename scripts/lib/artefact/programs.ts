/**
 * Bundles the processes into lib/: one file for each process, thread and child process, and shared
 * chunks. No node_modules are needed.
 */
import { copyFileSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { build, type Metafile, type Plugin } from 'esbuild';
import { ON_THE_MACHINE } from '../../../bin/launch.mjs';
import { bundleCommandLine } from '../bundle.mjs';
import { root } from '../places.mjs';
import { ARCHITECTURES, type Architecture } from './node.ts';

/** Names of the launcher's programs (bin/launch.mjs), and their modules. */
const PROGRAMS = {
  'control-plane': 'packages/control-plane/src/main.ts',
  gateway: 'packages/gateway/src/main.ts',
  agent: 'packages/agent/src/main.ts',
  relay: 'packages/relay/src/main.ts',
  ...Object.fromEntries(
    Object.entries(ON_THE_MACHINE).map(([name, folder]) => [
      name,
      `packages/${folder}/src/${name}.ts`,
    ]),
  ),
};

/** How the sources name the module of a thread or a child process. */
const OTHER_MODULE = /new URL\('(\.[^']*)\.ts', import\.meta\.url\)/g;
const BUNDLED = 'packages/{agent,cli,control-plane,gateway,kit,operator,relay,wire}/src/**/*.ts';
const read = (file: string): string => readFileSync(join(root, file), 'utf8');

/**
 * Threads and child processes are programs too. The bundle is flat, so the name alone leads there.
 */
function threadsAndChildren(): Record<string, string> {
  const found: Record<string, string> = {};
  for (const file of globSync(BUNDLED, { cwd: root }).toSorted()) {
    for (const [, module = ''] of read(file).matchAll(OTHER_MODULE)) {
      const path = `${join(dirname(file), module)}.ts`;
      const name = basename(module);
      if (found[name] !== undefined && found[name] !== path)
        throw new Error(`${found[name]} and ${path} need different names`);
      found[name] = path;
    }
  }
  return found;
}

const flatNames: Plugin = {
  name: 'flat-names',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\/packages\/[a-z-]+\/src\/.*\.ts$/ }, ({ path }) => ({
      loader: 'ts',
      contents: readFileSync(path, 'utf8').replaceAll(
        OTHER_MODULE,
        (_, module: string) => `new URL('./${basename(module)}.js', import.meta.url)`,
      ),
    })),
};

/** The prebuilt SQLite of one architecture, instead of a search for it at run time. */
const nativeSqlite = (arch: Architecture): Plugin => ({
  name: 'native-sqlite',
  setup: (bundler) =>
    bundler.onResolve({ filter: /^better-sqlite3$/ }, ({ resolveDir }) =>
      bundler.resolve(`better-sqlite3/linux-${ARCHITECTURES[arch]}`, {
        resolveDir,
        kind: 'import-statement',
      }),
    ),
});

/**
 * Folder in lib/ with the page at /docs. @fastify/swagger-ui looks for it relative to its own
 * files, which are bundled here.
 */
const DOCS_PAGE = 'static';
const docsPage: Plugin = {
  name: 'docs-page',
  setup: ({ onLoad }) =>
    onLoad({ filter: /@fastify\/swagger-ui\/lib\/routes\.js$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      const contents = text.replace(
        "path.join(__dirname, '..', 'static')",
        `path.join(__dirname, '${DOCS_PAGE}')`,
      );
      if (contents === text)
        throw new Error(
          `${path} names its static files in another way: change the plugin docs-page`,
        );
      return { contents, loader: 'js' };
    }),
};

/**
 * Writes the programs to `lib`. `more`: further programs, by name. @returns what they are made of,
 * with paths relative to the repository
 */
export async function bundlePrograms(
  lib: string,
  arch: Architecture,
  more: Readonly<Record<string, string>> = {},
): Promise<Metafile> {
  const entryPoints = { ...PROGRAMS, ...more, ...threadsAndChildren() };
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: Object.fromEntries(
      Object.entries(entryPoints).map(([name, path]) => [name, join(root, path)]),
    ),
    outdir: lib,
    bundle: true,
    metafile: true,
    splitting: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    entryNames: '[name]',
    chunkNames: 'chunk-[hash]',
    assetNames: '[name]',
    loader: { '.node': 'copy' },
    // An option of pg that Berth does not use.
    external: ['pg-native'],
    plugins: [flatNames, nativeSqlite(arch), docsPage],
    legalComments: 'none',
    logLevel: 'error',
    // Some dependencies are CommonJS.
    banner: {
      js: [
        "import { createRequire as createRequireOfBundle } from 'node:module';",
        'const require = createRequireOfBundle(import.meta.url);',
        'const __dirname = import.meta.dirname;',
        'const __filename = import.meta.filename;',
      ].join('\n'),
    },
  });
  const commandLine = await bundleCommandLine(join(lib, 'cli'));
  const staticFiles = resolve(root, 'node_modules/@fastify/swagger-ui/static');
  mkdirSync(join(lib, DOCS_PAGE));
  for (const name of globSync('*', { cwd: staticFiles }))
    copyFileSync(join(staticFiles, name), join(lib, DOCS_PAGE, name));
  copyFileSync(join(root, 'bin/launch.mjs'), join(lib, 'launch.mjs'));
  copyFileSync(join(root, 'scripts/lib/artefact/berth.js'), join(lib, 'berth.js'));
  writeFileSync(join(lib, 'package.json'), '{ "type": "module" }\n');
  return {
    inputs: { ...metafile.inputs, ...commandLine.inputs },
    outputs: { ...metafile.outputs, ...commandLine.outputs },
  };
}
