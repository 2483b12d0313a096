/**
 * The part of the registry's HTTP API (OCI distribution) that a clean-up uses, and the sizes of
 * images.
 */
import { trimOws } from '@berth/kit/ows';
import type { AgentConfig } from '@berth/wire/task';
import type { IsInsecure } from '../engine/insecure-registries.ts';
import { TaskFailure } from '../failures.ts';
import { tokenUrl } from './token-url.ts';

export type RegistryMode = 'writable' | 'read-only' | 'down';
/** `size`: compressed bytes. */
export type Layer = { digest: string; size: number };
export type RegistryApi = {
  /** Whether the registry takes uploads now. Rejects only with the signal’s reason. */
  mode(signal: AbortSignal): Promise<RegistryMode>;
  /** Whether the registry allows deletions (storage.delete.enabled). Throws TaskFailure. */
  allowsDeletion(signal: AbortSignal): Promise<boolean>;
  /** Returns the digest to which a tag points; null if there is none. */
  digestOf(repository: string, tag: string, signal: AbortSignal): Promise<string | null>;
  /** False only if the registry says that it does not have the image. */
  has(repository: string, digest: string, signal: AbortSignal): Promise<boolean>;
  /** True only if the registry says that it has the image. */
  holds(repository: string, digest: string, signal: AbortSignal): Promise<boolean>;
  /**
   * Returns the layers of an image, by tag or digest, with their compressed sizes; of an image for
   * several platforms, those for this machine. Null if the registry does not tell them.
   */
  layersOf(repository: string, reference: string, signal: AbortSignal): Promise<Layer[] | null>;
  /**
   * Deletes an image with the manifests that it consists of, except those in `keep`. Returns false
   * if it does not exist.
   */
  remove(
    repository: string,
    digest: string,
    keep: ReadonlySet<string>,
    signal: AbortSignal,
  ): Promise<boolean>;
};

/** The engine uses plain http there too. */
const LOOPBACK = /^(127\.[\d.]+|localhost|\[::1\])(:\d+)?$/;
const ANSWER_MS = 30_000;
/** A manifest is a few kilobytes; the specification requires registries to take up to 4 MiB. */
const MAX_MANIFEST = 4 * 1024 * 1024;
/** This machine’s platform as an image index (OCI) names it. */
const ARCHITECTURE = process.arch === 'x64' ? 'amd64' : process.arch;
type Manifest = {
  layers?: Layer[];
  manifests?: { digest: string; platform?: { os: string; architecture: string } }[];
};
/** Repository of the checks; nothing is ever stored there. */
const PROBE = 'berth-clean-up';
const NO_DIGEST = `sha256:${'0'.repeat(64)}`;
const INDEXES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
];
const MANIFESTS = [
  ...INDEXES,
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ');

export type RegistryApiDeps = {
  settings: () => AgentConfig | null;
  isInsecure: IsInsecure;
  /** REGISTRY_URL; undefined: the address of the settings. */
  url: string | undefined;
  /** How long an answer may take. */
  answerMs?: number;
};

export function createRegistryApi({
  settings,
  isInsecure,
  url: own,
  answerMs = ANSWER_MS,
}: RegistryApiDeps): RegistryApi {
  let scheme: { host: string; origin: string } | null = null;

  async function originOf(host: string, signal: AbortSignal): Promise<string> {
    if (scheme?.host === host) return scheme.origin;
    // Plain http exposes the password, so it is used only if the operator configured it in the
    // engine.
    const origin = `${LOOPBACK.test(host) || (await isInsecure(host, signal)) ? 'http' : 'https'}://${host}`;
    scheme = { host, origin };
    return origin;
  }

  async function request(method: string, path: string, signal: AbortSignal): Promise<Response> {
    const config = settings();
    if (config === null || config.registry_addr === '')
      throw new TaskFailure('registry_missing', '');
    const host = config.registry_addr.split('/')[0] ?? '';
    const origin = own ?? (await originOf(host, signal));
    const basic: Record<string, string> =
      config.registry_user === ''
        ? {}
        : {
            authorization:
              'Basic ' +
              Buffer.from(`${config.registry_user}:${config.registry_password}`).toString('base64'),
          };
    const limited = (): AbortSignal => AbortSignal.any([signal, AbortSignal.timeout(answerMs)]);
    const send = (url: string, headers: Record<string, string>): Promise<Response> =>
      fetch(url, {
        method,
        redirect: 'manual',
        headers: { accept: MANIFESTS, ...headers },
        signal: limited(),
      });
    const url = `${origin}/v2/${path}`;
    const answer = await send(url, basic);
    const challenge = answer.headers.get('www-authenticate') ?? '';
    if (answer.status !== 401 || !/^bearer /i.test(challenge)) return answer;
    await answer.body?.cancel();
    const repository = path.replace(/\/(manifests|blobs)\/.*$/, '');
    const token = await fetch(tokenUrl(challenge, repository, origin, 'pull,push,delete'), {
      headers: basic,
      signal: limited(),
    });
    const answered = (await token.json()) as { token?: string; access_token?: string };
    return send(url, { authorization: `Bearer ${answered.token ?? answered.access_token ?? ''}` });
  }

  /**
   * Like `request`, but without an answer it throws TaskFailure `registry_unreachable`, and 401,
   * 403 and 5xx throw too.
   */
  async function ask(method: string, path: string, signal: AbortSignal): Promise<Response> {
    const answer = await request(method, path, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      if (error instanceof TaskFailure) throw error;
      throw new TaskFailure('registry_unreachable', String((error as Error).cause ?? error), {
        cause: error,
      });
    });
    if (answer.status === 401 || answer.status === 403)
      throw new TaskFailure('registry_refused', `${method} ${path}: status ${answer.status}`);
    if (answer.status === 500 || answer.status === 507)
      throw new TaskFailure('registry_failed', `${method} ${path}: status ${answer.status}`);
    if (answer.status >= 500)
      throw new TaskFailure('registry_unreachable', `${method} ${path}: status ${answer.status}`);
    return answer;
  }
  const statusOf = async (method: string, path: string, signal: AbortSignal): Promise<number> => {
    const answer = await ask(method, path, signal);
    await answer.body?.cancel();
    return answer.status;
  };

  async function manifestOf(
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

  const api: RegistryApi = {
    async mode(signal) {
      try {
        const begun = await request('POST', `${PROBE}/blobs/uploads/`, signal);
        await begun.body?.cancel();
        const upload = begun.headers.get('location');
        if (begun.status === 202 && upload !== null) {
          // An upload that cannot be cancelled expires at the registry.
          const { pathname, search } = new URL(upload, 'http://registry');
          await statusOf('DELETE', `${pathname.replace(/^\/v2\//, '')}${search}`, signal).catch(
            () => signal.throwIfAborted(),
          );
        }
        if (begun.status === 405) return 'read-only';
        return begun.status < 300 ? 'writable' : 'down';
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof TaskFailure) throw error;
        return 'down';
      }
    },
    async allowsDeletion(signal) {
      return (await statusOf('DELETE', `${PROBE}/manifests/${NO_DIGEST}`, signal)) !== 405;
    },
    async digestOf(repository, tag, signal) {
      const answer = await ask('HEAD', `${repository}/manifests/${tag}`, signal);
      if (answer.status === 404) return null;
      const digest = answer.headers.get('docker-content-digest');
      // Not null: the image of the tag must stay, and nobody knows which one it is.
      if (answer.status !== 200 || digest === null)
        throw new TaskFailure(
          'registry_refused',
          `HEAD ${repository}:${tag}: status ${answer.status}, digest ${digest ?? 'missing'}`,
        );
      return digest;
    },
    async has(repository, digest, signal) {
      return (await statusOf('HEAD', `${repository}/manifests/${digest}`, signal)) !== 404;
    },
    async holds(repository, digest, signal) {
      return (await statusOf('HEAD', `${repository}/manifests/${digest}`, signal)) === 200;
    },
    async layersOf(repository, reference, signal) {
      const manifest = await manifestOf(repository, reference, signal);
      if (manifest?.manifests === undefined) return manifest?.layers ?? null;
      const own = manifest.manifests.find(
        ({ platform }) => platform?.os === 'linux' && platform.architecture === ARCHITECTURE,
      );
      return own === undefined
        ? null
        : ((await manifestOf(repository, own.digest, signal))?.layers ?? null);
    },
    async remove(repository, digest, keep, signal) {
      if (keep.has(digest)) return false;
      const manifest = await ask('GET', `${repository}/manifests/${digest}`, signal);
      const isIndex = INDEXES.includes(
        trimOws(manifest.headers.get('content-type')?.split(';')[0] ?? '').toLowerCase(),
      );
      const parts =
        isIndex && manifest.status === 200
          ? ((await manifest.json()) as { manifests?: { digest: string }[] }).manifests
          : [];
      if (!isIndex) await manifest.body?.cancel();
      if (manifest.status === 404) return false;
      const status = await statusOf('DELETE', `${repository}/manifests/${digest}`, signal);
      if (status === 405) throw new TaskFailure('registry_delete_disabled', '');
      if (status !== 202 && status !== 404)
        throw new TaskFailure(
          'registry_refused',
          `DELETE ${repository}@${digest}: status ${status}`,
        );
      // After the index, so that a clean-up that dies in between finds the rest by the index or
      // leaves parts, never an index without parts.
      for (const part of parts ?? [])
        if (!keep.has(part.digest))
          await statusOf('DELETE', `${repository}/manifests/${part.digest}`, signal);
      return status === 202;
    },
  };
  return api;
}
