/** Makes the OCI image from an artefact with `docker buildx` (deploy/Dockerfile). */
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from '../places.mjs';
import { BUILD_FILE, type Build } from './build.ts';
import { output } from './run.ts';

/**
 * `base`: the image to build on; left out: the default of the Dockerfile. @returns a line about the
 * image
 */
export async function buildImage(
  artefact: string,
  { tag, base }: { tag: string; base: string | undefined },
): Promise<string> {
  const build = JSON.parse(readFileSync(join(artefact, BUILD_FILE), 'utf8')) as Build;
  await output(['docker', 'buildx', 'version']).catch((error: unknown) => {
    throw new Error('--image needs docker with buildx (Debian 13: docker-cli and docker-buildx)', {
      cause: error,
    });
  });
  // The artefact may be anywhere, and the Dockerfile reads it at dist/berth.
  const context = mkdtempSync(join(tmpdir(), 'berth-image-'));
  try {
    cpSync(artefact, join(context, 'dist/berth'), { recursive: true, preserveTimestamps: true });
    const argument = (name: string, value: string): string[] => ['--build-arg', `${name}=${value}`];
    const label = (name: string, value: string): string[] => [
      '--label',
      `org.opencontainers.image.${name}=${value}`,
    ];
    await output([
      ...[
        'docker',
        'buildx',
        'build',
        '--file',
        join(root, 'deploy/Dockerfile'),
        '--tag',
        tag,
        '--platform',
        `linux/${build.arch}`,
      ],
      // A statement about the build has its time.
      ...[
        '--load',
        '--provenance=false',
        ...argument('SOURCE_DATE_EPOCH', String(build.source_date_epoch)),
      ],
      ...(base === undefined ? [] : argument('BASE', base)),
      ...[
        ...label('title', 'Berth'),
        ...label('version', build.version),
        ...label('licenses', 'MIT'),
      ],
      ...(build.commit === null ? [] : label('revision', build.commit)),
      context,
    ]);
  } finally {
    rmSync(context, { recursive: true, force: true });
  }
  const [id, bytes] = (
    await output(['docker', 'image', 'inspect', '--format', '{{.Id}} {{.Size}}', tag])
  )
    .trim()
    .split(' ');
  return `${tag}: ${Math.round(Number(bytes) / 1e6)} MB, ${id}`;
}
