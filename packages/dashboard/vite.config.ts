/**
 * Builds the dashboard to dist/: index.html and assets/ with hashed names. `npm run dashboard` adds
 * the mock of the API (mock/dev.ts).
 */
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';
import { ROUTES } from '../wire/src/routes.ts';

const REPOSITORY = fileURLToPath(new URL('../../', import.meta.url));

/**
 * The page needs the method, the path and the role of each route (wire/can.ts), and no schema. The
 * schemas of all routes would be a third of the first page, so the page gets this table instead.
 * Forms import the schemas that they use.
 */
function shortRouteTable(): Plugin {
  const short = Object.fromEntries(
    Object.entries(ROUTES).map(([name, { method, path, who }]) => [name, { method, path, who }]),
  );
  return {
    name: 'berth-routes',
    enforce: 'pre',
    transform: (_code, id) =>
      /[/\\]wire[/\\]src[/\\]routes\.ts$/.test(id)
        ? { code: `export const ROUTES = ${JSON.stringify(short)};`, map: null }
        : null,
  };
}

/**
 * Writes NAME.gz beside each text file of the build: the control plane sends it without compressing
 * anew. Gzip only: brotli takes seconds.
 */
function compressed(): Plugin {
  return {
    name: 'berth-gzip',
    apply: 'build',
    generateBundle: {
      order: 'post',
      async handler(_options, bundle) {
        for (const file of Object.values(bundle)) {
          if (!/\.(?:js|css|svg)$/.test(file.fileName)) continue;
          const source = await promisify(gzip)(file.type === 'chunk' ? file.code : file.source, {
            level: 9,
          });
          this.emitFile({ type: 'asset', fileName: `${file.fileName}.gz`, source });
        }
      },
    },
  };
}

/**
 * Writes inputs.json: the files of which the page is made, relative to the repository. Licences and
 * the bill of materials need it.
 */
function inputs(): Plugin {
  return {
    name: 'berth-inputs',
    apply: 'build',
    generateBundle(_options, bundle) {
      const files = Object.values(bundle).flatMap((file) =>
        file.type === 'chunk' ? file.moduleIds : [],
      );
      // Other modules are made by the bundler.
      const real = files
        .filter((id) => id.startsWith('/'))
        .map((id) => relative(REPOSITORY, id.replace(/\?.*$/, '')));
      this.emitFile({
        type: 'asset',
        fileName: 'inputs.json',
        source: JSON.stringify([...new Set(real)].toSorted()),
      });
    },
  };
}

export default defineConfig({
  // The schemas of forms are data. The library that makes them is larger than the page, so the page
  // gets the same stand-in as the CLI.
  resolve: {
    alias: [
      { find: /^typebox(?:\/value)?$/, replacement: `${REPOSITORY}scripts/lib/typebox-light.mjs` },
    ],
  },
  plugins: [shortRouteTable(), react(), compressed(), inputs()],
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    target: 'es2023',
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  worker: { format: 'es' },
});
