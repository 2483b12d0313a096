/**
 * Software bill of materials (CycloneDX 1.6, JSON): the packages in the bundles, and the programs
 * that npm knows nothing of.
 */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Metafile } from 'esbuild';
import { nodeProgram, root } from '../places.mjs';
import { sqliteVersion, swaggerUiVersion } from './licenses.ts';
import type { NodeProgram } from './node.ts';
import { output } from './run.ts';

type Component = {
  type: string;
  name: string;
  version: string;
  'bom-ref': string;
  [field: string]: unknown;
};
type Bom = {
  components: Component[];
  dependencies: { ref: string; dependsOn?: string[] }[];
  metadata: { component: Component };
};

export async function writeSbom(
  file: string,
  metafile: Metafile,
  node: NodeProgram,
): Promise<void> {
  const draft = `${file}.metafile`;
  writeFileSync(draft, JSON.stringify(metafile));
  const generator = join(
    root,
    'node_modules/@cyclonedx/cyclonedx-esbuild/bin/cyclonedx-esbuild-cli.js',
  );
  const options = ['--output-reproducible', '--validate', '--build-working-dir', root];
  const bom = JSON.parse(
    await output([nodeProgram, generator, ...options, draft], { cwd: root }),
  ) as Bom;
  rmSync(draft);
  const others = [
    component('node', node.version, 'MIT', `pkg:generic/node@${node.version}`, {
      hashes: [{ alg: 'SHA-256', content: node.sha256 }],
    }),
    component('sqlite', sqliteVersion(), 'blessing', `pkg:generic/sqlite@${sqliteVersion()}`),
    component(
      'swagger-ui-dist',
      swaggerUiVersion(),
      'Apache-2.0',
      `pkg:npm/swagger-ui-dist@${swaggerUiVersion()}`,
    ),
  ];
  // The manifests of the parts of Berth name no licence; the repository has one for all.
  for (const part of bom.components)
    if (part['group'] === '@berth') part['licenses'] = [{ license: { id: 'MIT' } }];
  bom.components.push(...others);
  const main = bom.metadata.component['bom-ref'];
  for (const { 'bom-ref': ref } of others) bom.dependencies.push({ ref });
  const ofMain = bom.dependencies.find(({ ref }) => ref === main);
  if (ofMain === undefined)
    throw new Error('the bill of materials has no dependencies of Berth itself');
  ofMain.dependsOn = [
    ...(ofMain.dependsOn ?? []),
    ...others.map((other) => other['bom-ref']),
  ].toSorted();
  writeFileSync(file, `${JSON.stringify(bom, null, 2)}\n`);
}

function component(
  name: string,
  version: string,
  license: string,
  purl: string,
  more: object = {},
): Component {
  return {
    type: 'application',
    name,
    version,
    'bom-ref': purl,
    scope: 'required',
    licenses: [{ license: { id: license } }],
    purl,
    ...more,
  };
}
