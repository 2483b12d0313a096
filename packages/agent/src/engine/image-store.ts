/** Lists, inspects and removes images of the engine. */
import type { Image } from './docker.ts';
import type { Answer, EngineClient } from './engine-client.ts';
import { isImageGone, isInUse, orElse, withCode } from './engine-errors.ts';
import { repositoryOf } from './image-ref.ts';
import { type ImageConfig, readImageConfig } from './image-config.ts';

type ImageDescription = Answer<'GET /images/{name}/json'>;

/** Returns null if the image does not exist. */
async function describeImage(
  engine: EngineClient,
  ref: string,
  signal: AbortSignal,
): Promise<ImageDescription | null> {
  try {
    return await engine.call('GET /images/{name}/json', { params: { name: ref }, signal });
  } catch (error) {
    if (isImageGone(error)) return null;
    throw withCode(error, 'engine_unavailable');
  }
}

export async function imageConfigOf(
  engine: EngineClient,
  ref: string,
  signal: AbortSignal,
): Promise<ImageConfig | null> {
  const description = await describeImage(engine, ref, signal);
  return description === null ? null : readImageConfig(description);
}

export async function imageSizeOf(
  engine: EngineClient,
  ref: string,
  signal: AbortSignal,
): Promise<number | null> {
  return (await describeImage(engine, ref, signal))?.Size ?? null;
}

/** Lists images of `repository`, which can end with `/*` to match one more name part. */
export async function listImages(engine: EngineClient, repository: string): Promise<Image[]> {
  const images = await engine.call('GET /images/json', {
    query: { filters: JSON.stringify({ reference: [repository] }) },
  });
  return images.map(({ Id, Created, RepoTags, RepoDigests }) => ({
    id: Id,
    created: Created,
    refs: [...(RepoTags ?? []), ...(RepoDigests ?? [])].filter((ref) => isOf(ref, repository)),
  }));
}
/**
 * Tells whether `ref` is in the repository: an image can also have names in other repositories.
 * `<none>` stands for a missing tag or digest.
 */
function isOf(ref: string, repository: string): boolean {
  if (ref.includes('<none>')) return false;
  const name = repositoryOf(ref);
  if (!repository.endsWith('/*')) return name === repository;
  const prefix = repository.slice(0, -1);
  return name.startsWith(prefix) && !name.slice(prefix.length).includes('/');
}

export async function imagesWithContainer(engine: EngineClient): Promise<Set<string>> {
  const containers = await engine.call('GET /containers/json', { query: { all: true } });
  return new Set(containers.flatMap(({ ImageID }) => ImageID ?? []));
}

/**
 * Removes an image without force. Returns false if the engine refuses because the image is in use.
 */
export async function removeImage(engine: EngineClient, ref: string): Promise<boolean> {
  const removing = engine
    .call('DELETE /images/{name}', { params: { name: ref }, timeoutMs: 120_000 })
    .then(() => true);
  try {
    return await orElse(orElse(removing, isImageGone, true), isInUse, false);
  } catch (error) {
    throw withCode(error, 'engine_unavailable');
  }
}
