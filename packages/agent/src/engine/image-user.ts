/** Finds the user id of an image's user. */
import { posix } from 'node:path';
import { TaskFailure } from '../failures.ts';
import { removeContainer } from './containers.ts';
import { type EngineClient, EngineError } from './engine-client.ts';
import { withCode } from './engine-errors.ts';

const PASSWD = '/etc/passwd';
const MAX_PASSWD = 4 * 1024 * 1024;
const NO_FILE = /could not find the file|no such file/i;
/** Go's `fs.ModeSymlink`. */
const IS_LINK = 1 << 27;

/**
 * Returns the id of `user`. For a name, reads /etc/passwd of the image from a container that it
 * never starts.
 */
export async function userIdOf(
  engine: EngineClient,
  image: string,
  userAndGroup: string,
  labels: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<number> {
  const user = userAndGroup.split(':')[0] ?? '';
  if (/^\d*$/.test(user)) return Number(user);
  const uid = idIn(await passwdOf(engine, image, labels, signal), user);
  if (uid !== null) return uid;
  throw new TaskFailure(
    'container_start_failed',
    `the image sets USER ${user}, but has no such user in ${PASSWD}; add it in the Dockerfile ` +
      '(RUN adduser …), or set a numeric USER',
  );
}

/** Finds the user's id in a tar archive that contains one passwd file. */
function idIn(passwd: string, user: string): number | null {
  const entry = passwd
    .split('\n')
    .map((line) => line.slice(line.lastIndexOf('\0') + 1).split(':'))
    .find(([name]) => name === user);
  const uid = entry?.[2];
  return uid !== undefined && /^\d+$/.test(uid) ? Number(uid) : null;
}

async function passwdOf(
  engine: EngineClient,
  image: string,
  labels: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<string> {
  const { Id: id } = await engine.call('POST /containers/create', {
    // The engine requires a command, even for a container that never runs.
    body: {
      Image: image,
      Cmd: ['none'],
      Labels: { ...labels },
      HostConfig: { NetworkMode: 'none' },
    },
    signal,
  });
  try {
    const { text, target } = await readFile(engine, id, PASSWD, signal);
    return target === null ? text : (await readFile(engine, id, target, signal)).text;
  } catch (error) {
    if (error instanceof EngineError && NO_FILE.test(error.reason)) return '';
    throw withCode(error, 'engine_unavailable');
  } finally {
    await removeContainer(engine, id);
  }
}

/** Reads a file of the container. `target`: where a symbolic link leads; null for a file. */
async function readFile(
  engine: EngineClient,
  id: string,
  path: string,
  signal: AbortSignal,
): Promise<{ text: string; target: string | null }> {
  const parts: Buffer[] = [];
  let size = 0;
  let target: string | null = null;
  await engine.stream('GET /containers/{id}/archive', {
    params: { id },
    query: { path },
    signal,
    onPathStat: (stat) => (target = linkTarget(stat, path)),
    onChunk(chunk) {
      size += chunk.length;
      if (size <= MAX_PASSWD) parts.push(chunk);
    },
  });
  return { text: Buffer.concat(parts).toString('utf8'), target };
}

/** Reads the target of a symbolic link from the header X-Docker-Container-Path-Stat. */
function linkTarget(pathStat: string, path: string): string | null {
  const stat = JSON.parse(Buffer.from(pathStat, 'base64').toString('utf8')) as {
    mode?: number;
    linkTarget?: string;
  };
  const isLink = ((stat.mode ?? 0) & IS_LINK) !== 0 && (stat.linkTarget ?? '') !== '';
  return isLink ? posix.resolve(posix.dirname(path), stat.linkTarget ?? '') : null;
}
