/**
 * Pushes synthetic images over the registry's HTTP API, without an engine: layers of random bytes,
 * which no compression shrinks.
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Registry } from './registry.ts';

const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';
const ALL_KINDS = [
  MANIFEST,
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
].join(', ');
const digestOf = (bytes: Buffer): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

export type PushedImage = { digest: string; layers: string[]; bytes: number };
export class PushRefused extends Error {
  override name = 'PushRefused';
  readonly status: number;
  constructor(status: number, what: string) {
    super(`the registry refused ${what}: status ${status}`);
    this.status = status;
  }
}

type At = Pick<Registry, 'url' | 'user' | 'password'>;
export const registryHeaders = ({ user, password }: At): Record<string, string> =>
  user === undefined || password === undefined
    ? {}
    : { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` };

/** Returns a layer with these files as an uncompressed tar archive, which an engine accepts too. */
export function layerOf(files: Readonly<Record<string, Buffer>>): Buffer {
  const parts = Object.entries(files).flatMap(([path, data]) => {
    const header = Buffer.alloc(512);
    const field = (text: string, at: number, size: number): number =>
      header.write(text.slice(0, size), at, 'latin1');
    const octal = (value: number, at: number, size: number): number =>
      field(value.toString(8).padStart(size - 1, '0'), at, size);
    field(path, 0, 100);
    octal(0o755, 100, 8);
    octal(0, 108, 8);
    octal(0, 116, 8);
    octal(data.length, 124, 12);
    octal(0, 136, 12);
    field(' '.repeat(8), 148, 8);
    field('0', 156, 1);
    field('ustar\x0000', 257, 8);
    octal(
      header.reduce((sum, byte) => sum + byte, 0),
      148,
      7,
    );
    header[154] = 0;
    return [header, data, Buffer.alloc((512 - (data.length % 512)) % 512)];
  });
  return Buffer.concat([...parts, Buffer.alloc(1024)]);
}

/**
 * Pushes an image as docker does: each layer that the registry does not have, then the manifest.
 * Throws PushRefused. An engine runs it if `run` is given and the layers are of `layerOf`.
 */
export async function pushImage(
  registry: At,
  repository: string,
  tag: string,
  layers: readonly Buffer[],
  run?: { command: readonly string[]; created?: string },
): Promise<PushedImage> {
  const headers = registryHeaders(registry);
  const config = Buffer.from(
    JSON.stringify({
      architecture: process.arch === 'arm64' ? 'arm64' : 'amd64',
      os: 'linux',
      created: run?.created ?? new Date().toISOString(),
      id: randomBytes(8).toString('hex'),
      config: { Cmd: run?.command ?? [] },
      rootfs: { type: 'layers', diff_ids: run === undefined ? [] : layers.map(digestOf) },
    }),
  );
  const digests: string[] = [];
  let bytes = 0;
  for (const blob of [...layers, config]) {
    const digest = digestOf(blob);
    digests.push(digest);
    const has = await fetch(`${registry.url}/v2/${repository}/blobs/${digest}`, {
      method: 'HEAD',
      headers,
    });
    if (has.status === 200) continue;
    const begun = await fetch(`${registry.url}/v2/${repository}/blobs/uploads/`, {
      method: 'POST',
      headers,
    });
    await begun.body?.cancel();
    if (begun.status !== 202) throw new PushRefused(begun.status, 'an upload');
    const upload = new URL(begun.headers.get('location') ?? '', registry.url);
    upload.searchParams.set('digest', digest);
    const put = await fetch(upload, {
      method: 'PUT',
      headers: { ...headers, 'content-type': 'application/octet-stream' },
      body: new Uint8Array(blob),
    });
    await put.body?.cancel();
    if (put.status !== 201) throw new PushRefused(put.status, 'a layer');
    bytes += blob.length;
  }
  const configDigest = digests.pop() ?? '';
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: {
        mediaType: 'application/vnd.docker.container.image.v1+json',
        size: config.length,
        digest: configDigest,
      },
      layers: layers.map((layer, i) => ({
        mediaType: 'application/vnd.docker.image.rootfs.diff.tar.gzip',
        size: layer.length,
        digest: digests[i],
      })),
    }),
  );
  const put = await fetch(`${registry.url}/v2/${repository}/manifests/${tag}`, {
    method: 'PUT',
    headers: { ...headers, 'content-type': MANIFEST },
    body: new Uint8Array(manifest),
  });
  await put.body?.cancel();
  if (put.status !== 201) throw new PushRefused(put.status, 'the manifest');
  return { digest: digestOf(manifest), layers: digests, bytes };
}

/** Pulls an image and checks the digest of each part. Returns what is missing or damaged. */
export async function missingParts(
  registry: At,
  repository: string,
  digest: string,
): Promise<string[]> {
  const headers = registryHeaders(registry);
  const answer = await fetch(`${registry.url}/v2/${repository}/manifests/${digest}`, {
    headers: { ...headers, accept: ALL_KINDS },
  });
  if (answer.status !== 200) {
    await answer.body?.cancel();
    return [`manifest ${digest}: status ${answer.status}`];
  }
  type Part = { digest: string };
  const manifest = (await answer.json()) as { config?: Part; layers?: Part[]; manifests?: Part[] };
  const missing: string[] = [];
  for (const image of manifest.manifests ?? [])
    missing.push(...(await missingParts(registry, repository, image.digest)));
  for (const part of [
    ...(manifest.config === undefined ? [] : [manifest.config]),
    ...(manifest.layers ?? []),
  ]) {
    const blob = await fetch(`${registry.url}/v2/${repository}/blobs/${part.digest}`, { headers });
    if (blob.status !== 200 || digestOf(Buffer.from(await blob.arrayBuffer())) !== part.digest)
      missing.push(`blob ${part.digest}: status ${blob.status}`);
  }
  return missing;
}
