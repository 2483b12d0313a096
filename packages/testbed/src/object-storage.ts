/**
 * A real object storage that speaks S3: versitygw on a folder. Each bucket is a folder in it.
 * Debian has no package: `npm run setup -- --s3` builds it with Go (s3-server).
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findProgram } from './config.ts';
import { freePort } from './ports.ts';
import { startProcess, untilReady } from './process.ts';

export interface ObjectStorage {
  /** AWS_ variables for a client. */
  readonly env: Readonly<Record<string, string>>;
  /** Creates a bucket and returns its folder. */
  createBucket(name: string): Promise<string>;
  stop(): Promise<void>;
}

const program = (): string | undefined => findProgram('versitygw');

/** Returns why this machine has no object storage; undefined when it has one. */
export const whyNoObjectStorage = (): string | undefined =>
  program() === undefined ? 'no versitygw (CONTRIBUTING.md says how to build it)' : undefined;

/** @throws when versitygw is missing or does not answer within 30 s */
export async function startObjectStorage(): Promise<ObjectStorage> {
  const versitygw = program();
  if (versitygw === undefined) throw new Error(whyNoObjectStorage());
  const dir = await mkdtemp(join(tmpdir(), 'berth-s3-'));
  const buckets = join(dir, 'buckets');
  await mkdir(buckets);
  const port = await freePort();
  const [access, secret] = ['berth-tests', 'secret-of-the-tests'];
  const argv = [
    versitygw,
    '--quiet',
    '--port',
    `127.0.0.1:${port}`,
    'posix',
    '--sidecar',
    join(dir, 'attributes'),
    buckets,
  ] as const;
  await mkdir(join(dir, 'attributes'));
  const server = await startProcess(argv, {
    name: 'versitygw',
    cwd: dir,
    env: { ROOT_ACCESS_KEY: access, ROOT_SECRET_KEY: secret },
    logFile: join(dir, 'log'),
  });
  const stop = async (): Promise<void> => {
    await server.stop(10_000);
    await rm(dir, { recursive: true, force: true });
  };
  const url = `http://127.0.0.1:${port}`;
  try {
    // Any answer will do: without a signature it is 403.
    await untilReady(server, async () => (await fetch(url)).status > 0, 30_000);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    env: {
      AWS_ACCESS_KEY_ID: access,
      AWS_SECRET_ACCESS_KEY: secret,
      AWS_REGION: 'us-east-1',
      AWS_ENDPOINT_URL_S3: url,
    },
    async createBucket(name) {
      const folder = join(buckets, name);
      await mkdir(folder);
      return folder;
    },
    stop,
  };
}
