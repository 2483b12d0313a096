// Bundles the command line for a quick start. bin/berth runs the sources where there is no bundle
// or a source is newer.
import { existsSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root, toolsDir } from './places.mjs';

const bundleDir = join(toolsDir, 'cli');

/** Whether there is a bundle that is newer than every source. */
export function bundleIsCurrent() {
  const made = statSync(join(bundleDir, 'main.js'), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return (
    made > 0 &&
    ['cli', 'wire', 'kit'].every((name) => newestIn(join(root, 'packages', name, 'src')) < made)
  );
}

function newestIn(folder) {
  if (!existsSync(folder)) return 0;
  const times = readdirSync(folder, { withFileTypes: true }).map((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? newestIn(path) : statSync(path).mtimeMs;
  });
  return Math.max(0, ...times);
}

/** esbuild plugin: schemas without typebox. Only berth.toml is checked with the real library. */
export const lightSchemas = {
  name: 'light-schemas',
  setup: (build) =>
    build.onResolve({ filter: /^typebox(\/value)?$/ }, ({ path, importer }) =>
      path === 'typebox/value' && importer.endsWith('berth-toml.ts')
        ? undefined
        : { path: join(root, 'scripts/lib/typebox-light.mjs') },
    ),
};

/** Some dependencies are CommonJS and call `require`. */
const REQUIRE =
  "import{createRequire as createRequireOfBundle}from'node:module';const " +
  'require=createRequireOfBundle(import.meta.url);';
const options = {
  absWorkingDir: root,
  bundle: true,
  plugins: [lightSchemas],
  platform: 'node',
  format: 'esm',
  target: 'node24',
  minify: true,
  logLevel: 'silent',
};

/** Writes the bundle to `outdir`. @returns what it is made of */
export async function bundleCommandLine(outdir) {
  const { build } = await import('esbuild');
  const { metafile } = await build({
    ...options,
    entryPoints: { main: join(root, 'packages/cli/src/main.ts') },
    outdir,
    metafile: true,
    // Parts that few commands need (prompts, the MCP server) are files of their own.
    splitting: true,
    banner: { js: REQUIRE },
  });
  // The bundle is ES modules, also where no package.json above says so.
  writeFileSync(join(outdir, 'package.json'), '{ "type": "module" }\n');
  return metafile;
}

/** Writes the command line as one program, which runs with the Node.js of the machine. */
export async function bundleCommandLineFile(outfile) {
  const { build } = await import('esbuild');
  await build({
    ...options,
    stdin: {
      contents:
        "import { main } from './packages/cli/src/main.ts';\nawait main(process.argv.slice(2));\n",
      resolveDir: root,
    },
    outfile,
    banner: { js: `#!/usr/bin/env node\n${REQUIRE}` },
  });
}

/** @returns what is missing, or undefined on success */
export async function provideBundle() {
  const draft = `${bundleDir}-${process.pid}`;
  try {
    await bundleCommandLine(draft);
    // bin/berth imports main.js. On machines without this repository, berth.js runs alone
    // (docs/ci.md).
    writeFileSync(
      join(draft, 'berth.js'),
      "import { main } from './main.js';\nawait main(process.argv.slice(2));\n",
    );
    rmSync(bundleDir, { recursive: true, force: true });
    renameSync(draft, bundleDir);
    return undefined;
  } catch (error) {
    rmSync(draft, { recursive: true, force: true });
    return {
      part: 'bundle of the command line',
      why: `berth starts from its sources, which takes longer: ${error.message}`,
      how: 'run npm run setup again',
    };
  }
}
