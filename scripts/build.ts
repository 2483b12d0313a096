/**
 * npm run build: makes the artefact dist/berth/ (docs/artefacts.md).
 *   npm run build -- [--out DIR] [--arch amd64|arm64] [--node npm:VERSION|DIR] [--deb xz|gzip|none]
 * BERTH_NODE is the same as --node. SOURCE_DATE_EPOCH and BERTH_COMMIT replace what git says.
 */
import { parseArgs } from 'node:util';
import { buildArtefact } from './lib/artefact/build.ts';
import { buildDeb, COMPRESSIONS } from './lib/artefact/deb.ts';
import { ARCHITECTURES, hostArchitecture, type Architecture } from './lib/artefact/node.ts';

const { values } = parseArgs({
  options: {
    out: { type: 'string', default: 'dist/berth' },
    arch: { type: 'string', default: hostArchitecture() },
    node: { type: 'string', default: process.env['BERTH_NODE'] ?? 'npm' },
    deb: { type: 'string' },
  },
});
const isArchitecture = (name: string): name is Architecture => Object.hasOwn(ARCHITECTURES, name);
try {
  if (!isArchitecture(values.arch)) throw new Error(`--arch ${values.arch}: must be ${Object.keys(ARCHITECTURES).join(' or ')}`);
  const compression = COMPRESSIONS.find((name) => name === values.deb);
  if (values.deb !== undefined && compression === undefined) throw new Error(`--deb ${values.deb}: must be ${COMPRESSIONS.join(', ')}`);
  const { out, node, files, bytes } = await buildArtefact({ out: values.out, arch: values.arch, node: values.node });
  console.log(`${out}: ${files} files, ${Math.round(bytes / 1e6)} MB, Node ${node}, ${values.arch}`);
  if (compression !== undefined) console.log(await buildDeb(out, compression));
} catch (error) {
  console.error(`npm run build: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
