/**
 * Finds Git LFS pointers in a checkout, and fetches their content if the project requests it. The
 * agent implements the batch protocol itself and runs no git-lfs program. It reads only the
 * server's address from .lfsconfig, checks the host of each address like that of a submodule, and
 * requires content with the SHA-256 of its pointer.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { TaskFailure } from '../failures.ts';
import { gitHost, isListed } from './git-hosts.ts';
import type { Git } from './submodules.ts';

/** A file in a checkout that contains a pointer. */
export type LfsPointer = {
  dir: string;
  path: string;
  /** Path from the root of the project’s repository. */
  name: string;
  oid: string;
  size: number;
};
export type Checkout = {
  dir: string;
  /** Path prefix of the repository's files. */
  name: string;
  url: string;
  /** The Git LFS server in the repository's .lfsconfig. */
  lfsUrl?: string | null;
};
export type LfsOptions = {
  /** The address of the project’s repository. */
  ownUrl: string;
  /** Allowed hosts. Empty: any host. Undefined: only the host of the project. */
  allowedHosts: readonly string[] | undefined;
  /**
   * Returns the authorization header for a host that gets the project's git token; null for other
   * hosts.
   */
  authorization: (url: string) => string | null;
  /** Deadline on the monotonic clock in ms. */
  until: number;
  signal: AbortSignal;
  logLine: (line: string) => void;
};

const VERSION = 'version https://git-lfs.github.com/spec/v1';
/** Size limit in bytes: the specification requires pointers to be shorter. */
const MAX_POINTER = 1_024;
/** Maximum number of files with the LFS attribute that are read in each repository. */
const MAX_FILES = 100_000;
const MAX_TOTAL = 10 * 1024 ** 3;
const BATCH = 100;
const MAX_ANSWER = 4 * 1024 ** 2;
const MAX_REDIRECTS = 3;
const MEDIA_TYPE = 'application/vnd.git-lfs+json';

/** Finds the pointers. With `mustAll`, throws if a repository has more files than the limit. */
export async function findPointers(
  git: Git,
  checkouts: readonly Checkout[],
  mustAll = false,
): Promise<LfsPointer[]> {
  const pointers: LfsPointer[] = [];
  for (const { dir, name } of checkouts) {
    const paths = (await git(['ls-files', '-z', '--', ':(top,attr:filter=lfs)'], dir))
      .split('\0')
      .filter((path) => path !== '');
    if (mustAll && paths.length > MAX_FILES)
      throw failure(
        `more than ${MAX_FILES} files have the attribute filter=lfs. Set git_lfs=false`,
      );
    for (const path of paths.slice(0, MAX_FILES)) {
      const pointer = await readPointer(join(dir, path));
      if (pointer !== null) pointers.push({ dir, path, name: `${name}${path}`, ...pointer });
    }
  }
  return pointers;
}

/**
 * Returns the Git LFS server's address from .lfsconfig of the commit; null if there is none. Parses
 * the file as data only.
 */
export async function readLfsUrl(git: Git, dir: string): Promise<string | null> {
  // Ignore .lfsconfig if it is a symlink.
  if (
    !/^100\d{3} /.test(
      await git(['ls-files', '--stage', '-z', '--', ':(top,literal).lfsconfig'], dir),
    )
  )
    return null;
  const entries = (await git(['config', '-z', '--blob', 'HEAD:.lfsconfig', '--list'], dir)).split(
    '\0',
  );
  const last = (name: string): string | undefined =>
    entries.findLast((entry) => entry.startsWith(`${name}\n`))?.slice(name.length + 1);
  return last('lfs.url') ?? last('remote.origin.lfsurl') ?? null;
}

/** Lists some of the remaining pointers and the reason; null if there are none. */
export function pointersText(pointers: readonly LfsPointer[], why: string): string | null {
  if (pointers.length === 0) return null;
  const some = pointers
    .slice(0, 5)
    .map(({ name }) => name)
    .join(', ');
  const more = pointers.length > 5 ? ` and ${pointers.length - 5} more` : '';
  const what =
    pointers.length === 1
      ? '1 file is a Git LFS pointer, not its content'
      : `${pointers.length} files are Git LFS pointers, not their content`;
  return `${what}: ${some}${more}. The build gets the pointers: ${why}`;
}

/**
 * Replaces pointers by their content. Throws TaskFailure git_…. Returns the pointers that it cannot
 * fetch because their address is ssh.
 */
export async function fetchPointers(
  pointers: readonly LfsPointer[],
  checkouts: readonly Checkout[],
  options: LfsOptions,
): Promise<LfsPointer[]> {
  const notFetched: LfsPointer[] = [];
  const total = pointers.reduce((sum, { size }) => sum + size, 0);
  if (total > MAX_TOTAL)
    throw failure(
      `the files have ${total} bytes; a build fetches at most ${MAX_TOTAL / 1024 ** 3} GiB. ` +
        'Set git_lfs=false, or leave some out',
    );
  for (const { dir, name, url, lfsUrl = null } of checkouts) {
    const own = pointers.filter((pointer) => pointer.dir === dir);
    if (own.length === 0) continue;
    const server = lfsUrl ?? ofRepository(url);
    if (!/^https?:/i.test(server)) {
      notFetched.push(...own);
      continue;
    }
    if (lfsUrl !== null)
      checked(lfsUrl, URL.canParse(url) ? new URL(url) : null, `${name}.lfsconfig`, options);
    options.logLine(
      `fetching ${own.length} Git LFS ${own.length === 1 ? 'file' : 'files'} from ` +
        new URL(server).host,
    );
    for (let from = 0; from < own.length; from += BATCH)
      await fetchBatch(own.slice(from, from + BATCH), server, options);
  }
  return notFetched;
}

type Action = { href: string; header: Record<string, string> };

/** Returns the default address of a repository's Git LFS server. */
function ofRepository(url: string): string {
  const plain = url.replace(/\/+$/, '');
  return `${plain.endsWith('.git') ? plain : `${plain}.git`}/info/lfs`;
}

async function fetchBatch(
  pointers: readonly LfsPointer[],
  url: string,
  options: LfsOptions,
): Promise<void> {
  const endpoint = new URL(`${url.replace(/\/+$/, '')}/objects/batch`);
  endpoint.username = '';
  endpoint.password = '';
  const objects = [...new Map(pointers.map(({ oid, size }) => [oid, { oid, size }])).values()];
  const authorization = options.authorization(endpoint.href);
  const body = JSON.stringify({
    operation: 'download',
    transfers: ['basic'],
    hash_algo: 'sha256',
    objects,
  });
  const headers = {
    accept: MEDIA_TYPE,
    'content-type': MEDIA_TYPE,
    ...defined({ authorization: authorization ?? undefined }),
  };
  const answer = await request(endpoint, { method: 'POST', headers, body }, options);
  if (answer.status >= 300 && answer.status < 400)
    throw failure(
      `${endpoint.host} redirects the request for Git LFS files; set the git_url of the project ` +
        'to the address to which it redirects',
    );
  if (answer.status === 401 || answer.status === 403)
    throw new TaskFailure(
      authorization === null ? 'git_credentials' : 'git_token_refused',
      `${endpoint.host} refused the Git LFS files (HTTP ${answer.status}). Set a git token ` +
        'that may read them',
    );
  if (answer.status === 404)
    throw failure(
      `${endpoint.host} has no Git LFS server for this repository (HTTP 404). Set git_lfs=false`,
    );
  if (answer.status !== 200)
    throw failure(
      `${endpoint.host} answered HTTP ${answer.status} to the request for Git LFS files`,
    );
  const actions = actionsIn(await arriving(endpoint, options, () => textOf(answer, endpoint.host)));
  for (const pointer of pointers) {
    const action = actions.get(pointer.oid);
    if (action === undefined || typeof action === 'string')
      throw failure(
        `${pointer.name}: ${endpoint.host} does not have ` +
          `it${action === undefined ? '' : `: ${action}`}. Push it with git lfs push`,
      );
    await download(pointer, action, endpoint, authorization, options);
  }
}

/** Returns the download action of each object, or the reason why it has none. */
function actionsIn(text: string): Map<string, Action | string> {
  type Listed = {
    oid?: unknown;
    actions?: { download?: { href?: unknown; header?: Record<string, unknown> } };
    error?: { message?: unknown };
  };
  let answer: { objects?: (Listed | null)[] } | null;
  try {
    answer = JSON.parse(text) as typeof answer;
  } catch (error) {
    throw failure('the answer of the Git LFS server is not JSON', error);
  }
  const actionsByOid = new Map<string, Action | string>();
  for (const listed of Array.isArray(answer?.objects) ? answer.objects : []) {
    const { oid, actions, error } = listed ?? {};
    if (typeof oid !== 'string') continue;
    const href = actions?.download?.href;
    const header = Object.entries(actions?.download?.header ?? {}).filter(
      (pair): pair is [string, string] => typeof pair[1] === 'string',
    );
    if (typeof href === 'string')
      actionsByOid.set(oid, { href, header: Object.fromEntries(header.slice(0, 20)) });
    else
      actionsByOid.set(
        oid,
        typeof error?.message === 'string' ? error.message.slice(0, 300) : 'no address',
      );
  }
  return actionsByOid;
}

async function download(
  pointer: LfsPointer,
  { href, header }: Action,
  endpoint: URL,
  authorization: string | null,
  options: LfsOptions,
): Promise<void> {
  let at = checked(href, endpoint, pointer.name, options);
  let headers: Record<string, string>;
  try {
    headers = Object.fromEntries(new Headers(header));
  } catch (error) {
    throw invalidAddress(pointer, error);
  }
  const hasOwn = Object.keys(header).some((name) => name.toLowerCase() === 'authorization');
  if (at.origin === endpoint.origin && authorization !== null && !hasOwn)
    headers = { ...headers, authorization };
  for (let hops = 0; ; hops += 1) {
    const answer = await request(at, { headers }, options);
    const location = answer.headers.get('location');
    if (answer.status >= 300 && answer.status < 400 && location !== null) {
      await answer.body?.cancel();
      if (hops === MAX_REDIRECTS)
        throw failure(`${pointer.name}: ${at.host} redirects more often than allowed`);
      const next = checked(URL.parse(location, at.href)?.href ?? '', at, pointer.name, options);
      if (next.origin !== at.origin) headers = {};
      at = next;
      continue;
    }
    if (answer.status !== 200)
      throw failure(`${pointer.name}: ${at.host} answered HTTP ${answer.status}`);
    return arriving(at, options, () => store(pointer, answer, at.host));
  }
}

const invalidAddress = ({ name }: Pick<LfsPointer, 'name'>, cause?: unknown): TaskFailure =>
  failure(`${name}: the server names an invalid address or header`, cause);

/** Checks the host of an address, by the rule for submodules. */
function checked(
  href: string,
  from: URL | null,
  name: string,
  { ownUrl, allowedHosts }: LfsOptions,
): URL {
  const url = URL.canParse(href) ? new URL(href) : null;
  const host = url === null ? null : gitHost(href.trim());
  if (url === null || host === null || !/^https?:$/.test(url.protocol))
    throw invalidAddress({ name });
  if (from?.protocol === 'https:' && url.protocol !== 'https:')
    throw failure(`${name} leads to an address without https at ${url.host}`);
  const isAllowed =
    host === gitHost(ownUrl) ||
    (allowedHosts !== undefined && (allowedHosts.length === 0 || isListed(host, allowedHosts)));
  if (!isAllowed)
    throw failure(
      `${name} is at ${host}, which is not allowed for projects (ALLOWED_GIT_HOSTS of the ` +
        'control plane)',
    );
  return url;
}

async function request(
  url: URL,
  init: RequestInit,
  { signal, until }: LfsOptions,
): Promise<Response> {
  const limit = AbortSignal.timeout(Math.max(1, Math.ceil(until - performance.now())));
  try {
    return await fetch(url, {
      ...init,
      redirect: 'manual',
      signal: AbortSignal.any([signal, limit]),
    });
  } catch (error) {
    signal.throwIfAborted();
    if (limit.aborted)
      throw new TaskFailure(
        'git_timeout',
        'the Git LFS files did not arrive within CLONE_TIMEOUT',
        { cause: error },
      );
    const cause =
      error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error);
    throw new TaskFailure('git_unreachable', `Git LFS at ${url.host}: ${cause}`, { cause: error });
  }
}

/** Maps a body that breaks off or times out to the same failures as a failed request. */
async function arriving<T>(
  url: URL,
  { signal, until }: LfsOptions,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    signal.throwIfAborted();
    if (
      error instanceof TaskFailure ||
      ['ENOSPC', 'EDQUOT'].includes((error as NodeJS.ErrnoException).code ?? '')
    )
      throw error;
    if (performance.now() >= until)
      throw new TaskFailure(
        'git_timeout',
        'the Git LFS files did not arrive within CLONE_TIMEOUT',
        { cause: error },
      );
    throw new TaskFailure('git_unreachable', `Git LFS at ${url.host}: the connection broke`, {
      cause: error,
    });
  }
}

async function textOf(answer: Response, host: string): Promise<string> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of answer.body ?? []) {
    bytes += part.length;
    if (bytes > MAX_ANSWER)
      throw failure(`the answer of ${host} is longer than ${MAX_ANSWER / 1024 ** 2} MiB`);
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

/** Overwrites the pointer with the content, which keeps the mode of the file. */
async function store(
  { dir, path, name, oid, size }: LfsPointer,
  answer: Response,
  host: string,
): Promise<void> {
  const hash = createHash('sha256');
  let bytes = 0;
  const file = await open(
    join(dir, path),
    constants.O_WRONLY | constants.O_TRUNC | constants.O_NOFOLLOW | constants.O_NONBLOCK,
  );
  try {
    for await (const part of answer.body ?? []) {
      bytes += part.length;
      if (bytes > size)
        throw failure(`${name}: ${host} sends more than the ${size} bytes of its pointer`);
      hash.update(part);
      for (let at = 0; at < part.length; ) at += (await file.write(part, at)).bytesWritten;
    }
  } finally {
    await file.close();
  }
  if (bytes !== size || hash.digest('hex') !== oid)
    throw failure(
      `${name}: ${host} sends other content than its pointer names (${bytes} of ${size} bytes)`,
    );
}

async function readPointer(path: string): Promise<{ oid: string; size: number } | null> {
  // Do not follow symlinks: they can lead out of the checkout.
  const file = await open(
    path,
    constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK,
  ).catch(() => null);
  if (file === null) return null;
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(MAX_POINTER), 0, MAX_POINTER, 0);
    const text = buffer.toString('latin1', 0, bytesRead);
    if (!text.startsWith(`${VERSION}\n`)) return null;
    const oid = /^oid sha256:([0-9a-f]{64})$/m.exec(text)?.[1];
    const size = Number(/^size (\d{1,15})$/m.exec(text)?.[1] ?? Number.NaN);
    return oid === undefined || Number.isNaN(size) ? null : { oid, size };
  } finally {
    await file.close();
  }
}

const failure = (detail: string, cause?: unknown): TaskFailure =>
  new TaskFailure('git_failed', `Git LFS: ${detail}`, { cause });
