// Real git over smart HTTP or HTTPS: node:http in front of `git http-backend`, like nginx with
// fcgiwrap.
import { spawn } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { childEnvironment } from './config.ts';
import {
  allowAnySha,
  commitFiles,
  type Files,
  git,
  hermeticGit,
  initRepository,
  readFolder,
} from './git-repo.ts';

/**
 * How the server treats requests: serves them, accepts them and never answers, always answers this
 * status (with this text), or redirects requests for which `redirect` returns an address and serves
 * the others.
 */
export type Behaviour =
  | 'serve'
  | 'mute'
  | { readonly status: number; readonly text?: string }
  | { readonly redirect: (method: string, path: string) => string | undefined };

export interface GitServer {
  /** `http://address:port` or `https://…`, without credentials. */
  readonly url: string;
  /** Returns the address to clone a repository from. */
  repoUrl(name: string): string;
  /**
   * Creates a repository with one commit on `branch` (default main). Returns the commit's full id
   * and the address.
   */
  createRepo(
    name: string,
    files: string | Files,
    options?: { branch?: string; message?: string },
  ): Promise<{ url: string; sha: string }>;
  /**
   * Adds a commit (see commitFiles) and returns its full id. When `files` is a folder's path, the
   * tree becomes that folder's.
   */
  commit(
    name: string,
    files: string | Files,
    message: string,
    options?: { branch?: string; from?: string },
  ): Promise<string>;
  /** Returns the full id of a branch's newest commit. */
  head(name: string, branch?: string): Promise<string>;
  /** Sets whether clients can fetch any commit by its id (default: yes). */
  allowAnySha(name: string, allowed: boolean): Promise<void>;
  behave(behaviour: Behaviour): void;
  /** Number of requests so far. */
  requests(): number;
  /** Sets the credentials that every request needs; undefined: none. */
  require(credentials: { user: string; password: string } | undefined): void;
  /** The Authorization headers since the last call; '' for a request without one. */
  authorizations(): string[];
  stop(): Promise<void>;
}

export interface GitServerOptions {
  /** Folder of the bare repositories. */
  readonly root: string;
  /** Default 127.0.0.1. */
  readonly address?: string;
  readonly port?: number;
  /** When set, HTTP basic auth is required. */
  readonly credentials?: { readonly user: string; readonly password: string };
  /** Serve https with this key and certificate (PEM). */
  readonly tls?: { readonly key: string; readonly cert: string };
  /** Whether pushes are accepted (default: no, 403). */
  readonly push?: boolean;
}

export async function startGitServer(options: GitServerOptions): Promise<GitServer> {
  const { root } = options;
  await mkdir(root, { recursive: true });
  let behaviour: Behaviour = 'serve';
  let requests = 0;
  const tipsOnly = new Set<string>();
  let credentials = options.credentials;
  let authorizations: string[] = [];
  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    requests++;
    authorizations.push(request.headers.authorization ?? '');
    if (behaviour === 'mute') return;
    if (typeof behaviour === 'object' && 'status' in behaviour)
      return refuse(response, behaviour.status, behaviour.text);
    if (typeof behaviour === 'object') {
      const location = behaviour.redirect(request.method ?? '', request.url ?? '');
      if (location !== undefined)
        return void response
          .writeHead(302, { location, 'content-type': 'text/plain' })
          .end('moved\n');
    }
    if (!authorized(request, credentials)) return refuse(response, 401);
    serveByCgi(request, response, { root, push: options.push === true, tipsOnly });
  };
  const server =
    options.tls === undefined ? createServer(handle) : createTlsServer({ ...options.tls }, handle);
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port ?? 0, options.address ?? '127.0.0.1', resolve);
  });
  const { address, port } = server.address() as AddressInfo;
  const url = `${options.tls === undefined ? 'http' : 'https'}://${address}:${port}`;
  const path = (name: string) => join(root, `${name}.git`);
  const contents = (files: string | Files) =>
    typeof files === 'string' ? readFolder(files) : Promise.resolve(files);

  return {
    url,
    repoUrl: (name) => `${url}/${name}.git`,
    async createRepo(name, files, { branch = 'main', message = 'first commit' } = {}) {
      await initRepository(path(name), branch);
      await git(path(name), ['config', 'http.receivepack', String(options.push === true)]);
      await allowAnySha(path(name), true);
      const sha = await commitFiles(path(name), await contents(files), {
        branch,
        message,
        replaceAll: true,
      });
      return { url: `${url}/${name}.git`, sha };
    },
    async commit(name, files, message, { branch = 'main', from } = {}) {
      const base = from === undefined ? {} : { from };
      return commitFiles(path(name), await contents(files), {
        branch,
        message,
        replaceAll: typeof files === 'string',
        ...base,
      });
    },
    async head(name, branch = 'main') {
      return (await git(path(name), ['rev-parse', `refs/heads/${branch}`])).stdout.trim();
    },
    async allowAnySha(name, allowed) {
      await allowAnySha(path(name), allowed);
      if (allowed) tipsOnly.delete(name);
      else tipsOnly.add(name);
    },
    behave(next) {
      behaviour = next;
      // A mute server that serves again does not answer the old requests: close their connections.
      server.closeAllConnections();
    },
    requests: () => requests,
    require: (next) => void (credentials = next),
    authorizations() {
      const seen = authorizations;
      authorizations = [];
      return seen;
    },
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function authorized(
  request: IncomingMessage,
  credentials: GitServerOptions['credentials'],
): boolean {
  if (credentials === undefined) return true;
  const expected = Buffer.from(`${credentials.user}:${credentials.password}`).toString('base64');
  return request.headers.authorization === `Basic ${expected}`;
}

function refuse(response: ServerResponse, status: number, text = `${status}`): void {
  const challenge = status === 401 ? { 'www-authenticate': 'Basic realm="berth-testbed"' } : {};
  response.writeHead(status, { 'content-type': 'text/plain', ...challenge }).end(`${text}\n`);
}

/** Passes one request through `git http-backend` (RFC 3875); both bodies are streamed. */
function serveByCgi(
  request: IncomingMessage,
  response: ServerResponse,
  site: { root: string; push: boolean; tipsOnly: Set<string> },
): void {
  const url = new URL(request.url ?? '/', 'http://git.invalid');
  const repository = url.pathname.split('.git/')[0]?.slice(1) ?? '';
  // Protocol v2 serves any object whatever the settings say; only v0 can refuse one.
  const protocol = site.tipsOnly.has(repository)
    ? ''
    : String(request.headers['git-protocol'] ?? '');
  const header = (name: string) => String(request.headers[name] ?? '');
  const backend = spawn('git', ['http-backend'], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: childEnvironment({
      ...hermeticGit,
      GIT_PROJECT_ROOT: site.root,
      GIT_HTTP_EXPORT_ALL: '1',
      REQUEST_METHOD: request.method ?? 'GET',
      PATH_INFO: decodeURIComponent(url.pathname),
      QUERY_STRING: url.search.slice(1),
      REMOTE_ADDR: request.socket.remoteAddress ?? '',
      CONTENT_TYPE: header('content-type'),
      // Empty for a chunked body: the backend then reads to the end.
      CONTENT_LENGTH: header('content-length'),
      // The backend unpacks gzip when this variable says so.
      HTTP_CONTENT_ENCODING: header('content-encoding'),
      GIT_PROTOCOL: protocol,
      HTTP_GIT_PROTOCOL: protocol,
    }),
  });
  const fail = (why: string) => {
    if (response.headersSent) response.destroy(new Error(why));
    else response.writeHead(500, { 'content-type': 'text/plain' }).end(`${why}\n`);
  };
  let complaints = '';
  backend.stderr.on('data', (chunk: Buffer) => {
    complaints = (complaints + chunk.toString()).slice(-4_096);
  });
  backend.once('error', (error) => fail(`git http-backend: ${error.message}`));
  // If the backend ends before it has read everything (a refused push), its answer counts, not the
  // broken pipe.
  backend.stdin.on('error', () => undefined);
  request.pipe(backend.stdin);
  response.once('close', () => backend.kill('SIGKILL'));

  let head = Buffer.alloc(0);
  const readHead = (chunk: Buffer) => {
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end < 0) return;
    backend.stdout.off('data', readHead);
    const { status, headers } = parseHead(head.subarray(0, end).toString());
    response.writeHead(status, headers);
    response.write(head.subarray(end + 4));
    backend.stdout.pipe(response);
  };
  backend.stdout.on('data', readHead);
  backend.stdout.once('end', () => {
    if (!response.headersSent) fail(`git http-backend gave no answer: ${complaints}`);
  });
}

function parseHead(text: string): { status: number; headers: Record<string, string> } {
  const headers: Record<string, string> = {};
  let status = 200;
  for (const line of text.split('\r\n')) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    if (name === 'status') status = Number.parseInt(value, 10);
    else headers[name] = value;
  }
  return { status, headers };
}
