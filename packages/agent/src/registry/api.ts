/** Calls the registry's HTTP API (OCI distribution) for clean-ups and for the sizes of images. */
import { trimOws } from '@berth/kit/ows';
import { TaskFailure } from '../failures.ts';
import {
  createRegistryRequests,
  INDEXES,
  type RegistryRequestDeps,
  type RegistryRequests,
} from './requests.ts';

export type RegistryMode = 'writable' | 'read-only' | 'down';
export type Layer = {
  digest: string;
  /** Compressed size in bytes. */
  size: number;
};
export type RegistryApi = {
  /** Tells whether the registry accepts uploads now. Rejects only with the signal’s reason. */
  mode(signal: AbortSignal): Promise<RegistryMode>;
  /** Tells whether the registry allows deletions (storage.delete.enabled). Throws TaskFailure. */
  allowsDeletion(signal: AbortSignal): Promise<boolean>;
  /** Returns the digest to which a tag points; null if there is none. */
  digestOf(repository: string, tag: string, signal: AbortSignal): Promise<string | null>;
  /** Returns false only if the registry says that it does not have the image. */
  has(repository: string, digest: string, signal: AbortSignal): Promise<boolean>;
  /** Returns true only if the registry says that it has the image. */
  holds(repository: string, digest: string, signal: AbortSignal): Promise<boolean>;
  /**
   * Returns the layers of an image, by tag or digest, with their compressed sizes. For a
   * multi-platform image, returns the layers for this machine. Null if the registry does not report
   * them.
   */
  layersOf(repository: string, reference: string, signal: AbortSignal): Promise<Layer[] | null>;
  /**
   * Deletes an image with the manifests that it refers to, except those in `keep`. Returns false if
   * it does not exist.
   */
  remove(
    repository: string,
    digest: string,
    keep: ReadonlySet<string>,
    signal: AbortSignal,
  ): Promise<boolean>;
};

/**
 * Maximum size of a manifest in bytes. A manifest usually has a few kilobytes; registries must
 * accept up to 4 MiB.
 */
const MAX_MANIFEST = 4 * 1024 * 1024;
/** This machine’s architecture, as named in an OCI image index. */
const ARCHITECTURE = process.arch === 'x64' ? 'amd64' : process.arch;
type Manifest = {
  layers?: Layer[];
  manifests?: { digest: string; platform?: { os: string; architecture: string } }[];
};
/** Repository for checks, which always stays empty. */
const PROBE = 'berth-clean-up';
const NO_DIGEST = `sha256:${'0'.repeat(64)}`;
export function createRegistryApi(deps: RegistryRequestDeps): RegistryApi {
  const requests = createRegistryRequests(deps);
  return {
    mode: (signal) => modeOf(requests, signal),
    allowsDeletion: async (signal) =>
      (await statusOf(requests, 'DELETE', `${PROBE}/manifests/${NO_DIGEST}`, signal)) !== 405,
    digestOf: (repository, tag, signal) => digestOf(requests, repository, tag, signal),
    has: async (repository, digest, signal) =>
      (await statusOf(requests, 'HEAD', `${repository}/manifests/${digest}`, signal)) !== 404,
    holds: async (repository, digest, signal) =>
      (await statusOf(requests, 'HEAD', `${repository}/manifests/${digest}`, signal)) === 200,
    layersOf: (repository, reference, signal) => layersOf(requests, repository, reference, signal),
    remove: (repository, digest, keep, signal) =>
      removeManifest(requests, repository, digest, { keep, signal }),
  };
}

async function statusOf(
  { ask }: RegistryRequests,
  method: string,
  path: string,
  signal: AbortSignal,
): Promise<number> {
  const answer = await ask(method, path, signal);
  await answer.body?.cancel();
  return answer.status;
}

async function modeOf(requests: RegistryRequests, signal: AbortSignal): Promise<RegistryMode> {
  try {
    const begun = await requests.request('POST', `${PROBE}/blobs/uploads/`, signal);
    await begun.body?.cancel();
    const upload = begun.headers.get('location');
    if (begun.status === 202 && upload !== null) {
      // An upload that cannot be cancelled expires at the registry.
      const { pathname, search } = new URL(upload, 'http://registry');
      const path = `${pathname.replace(/^\/v2\//, '')}${search}`;
      await statusOf(requests, 'DELETE', path, signal).catch(() => signal.throwIfAborted());
    }
    if (begun.status === 405) return 'read-only';
    return begun.status < 300 ? 'writable' : 'down';
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof TaskFailure) throw error;
    return 'down';
  }
}

async function digestOf(
  { ask }: RegistryRequests,
  repository: string,
  tag: string,
  signal: AbortSignal,
): Promise<string | null> {
  const answer = await ask('HEAD', `${repository}/manifests/${tag}`, signal);
  if (answer.status === 404) return null;
  const digest = answer.headers.get('docker-content-digest');
  // Throw instead of returning null: the tag has an image that must stay, but its digest is
  // unknown.
  if (answer.status !== 200 || digest === null)
    throw new TaskFailure(
      'registry_refused',
      `HEAD ${repository}:${tag}: status ${answer.status}, digest ${digest ?? 'missing'}`,
    );
  return digest;
}

async function manifestOf(
  { ask }: RegistryRequests,
  repository: string,
  reference: string,
  signal: AbortSignal,
): Promise<Manifest | null> {
  const answer = await ask('GET', `${repository}/manifests/${reference}`, signal);
  if (answer.status !== 200 || Number(answer.headers.get('content-length') ?? 0) > MAX_MANIFEST) {
    await answer.body?.cancel();
    return null;
  }
  return (await answer.json()) as Manifest;
}

async function layersOf(
  requests: RegistryRequests,
  repository: string,
  reference: string,
  signal: AbortSignal,
): Promise<Layer[] | null> {
  const manifest = await manifestOf(requests, repository, reference, signal);
  if (manifest?.manifests === undefined) return manifest?.layers ?? null;
  const ownPart = manifest.manifests.find(
    ({ platform }) => platform?.os === 'linux' && platform.architecture === ARCHITECTURE,
  );
  if (ownPart === undefined) return null;
  return (await manifestOf(requests, repository, ownPart.digest, signal))?.layers ?? null;
}

async function removeManifest(
  requests: RegistryRequests,
  repository: string,
  digest: string,
  { keep, signal }: { keep: ReadonlySet<string>; signal: AbortSignal },
): Promise<boolean> {
  if (keep.has(digest)) return false;
  const manifest = await requests.ask('GET', `${repository}/manifests/${digest}`, signal);
  const parts = await partsOf(manifest);
  if (manifest.status === 404) return false;
  const path = `${repository}/manifests/${digest}`;
  const status = await statusOf(requests, 'DELETE', path, signal);
  if (status === 405) throw new TaskFailure('registry_delete_disabled', '');
  if (status !== 202 && status !== 404)
    throw new TaskFailure('registry_refused', `DELETE ${repository}@${digest}: status ${status}`);
  // Delete parts after their index. If a clean-up dies in between, there are leftover parts, but
  // never an index without its parts.
  for (const part of parts)
    if (!keep.has(part.digest))
      await statusOf(requests, 'DELETE', `${repository}/manifests/${part.digest}`, signal);
  return status === 202;
}

/** Returns the images of an index; an empty list if the manifest is a single image. */
async function partsOf(manifest: Response): Promise<{ digest: string }[]> {
  const type = trimOws(manifest.headers.get('content-type')?.split(';')[0] ?? '').toLowerCase();
  if (!INDEXES.includes(type)) {
    await manifest.body?.cancel();
    return [];
  }
  if (manifest.status !== 200) return [];
  return ((await manifest.json()) as { manifests?: { digest: string }[] }).manifests ?? [];
}
