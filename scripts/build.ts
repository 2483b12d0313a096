/**
 * npm run build: makes the artefact dist/berth/ (docs/artefacts.md).
 *   npm run build -- [--out DIR] [--arch amd64|arm64] [--node npm:VERSION|DIR] [--deb xz|gzip|none]
 *   [--image TAG [--base IMAGE]]
 * BERTH_NODE is the same as --node. SOURCE_DATE_EPOCH and BERTH_COMMIT replace what git says.
 */
import { parseArgs } from 'node:util';
import { messageOf } from '@berth/kit/message-of';
import { buildArtefact } from './lib/artefact/build.ts';
import { buildDeb, compressionOf } from './lib/artefact/deb.ts';
import { buildImage } from './lib/artefact/image.ts';
import { architectureOf, hostArchitecture } from './lib/artefact/node.ts';

const { values } = parseArgs({
  options: {
    out: { type: 'string', default: 'dist/berth' },
    arch: { type: 'string', default: hostArchitecture() },
    node: { type: 'string', default: process.env['BERTH_NODE'] ?? 'npm' },
    deb: { type: 'string' },
    image: { type: 'string' },
    base: { type: 'string' },
  },
});
try {
  const arch = architectureOf(values.arch);
  const compression = values.deb === undefined ? undefined : compressionOf(values.deb);
  if (values.base !== undefined && values.image === undefined)
    throw new Error('--base is the base of --image TAG: name the image too');
  const { out, node, files, bytes } = await buildArtefact({
    out: values.out,
    arch,
    node: values.node,
  });
  console.log(`${out}: ${files} files, ${Math.round(bytes / 1e6)} MB, Node ${node}, ${arch}`);
  if (compression !== undefined) console.log(await buildDeb(out, compression));
  if (values.image !== undefined)
    console.log(await buildImage(out, { tag: values.image, base: values.base }));
} catch (error) {
  console.error(`npm run build: ${messageOf(error)}`);
  process.exitCode = 1;
}
