// Provides the base images that the examples' Dockerfiles name, before the first build.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { childEnvironment, toolsDir } from './config.ts';
import type { Engine } from './engine-handle.ts';
import { layBusybox, layNode } from './root-fs.ts';
import { messageWithCause } from './wait.ts';

export type BaseImage = 'busybox:stable' | 'node:24-slim';

interface Recipe {
  /** Fills an empty folder. */
  readonly lay: (root: string) => Promise<void>;
  /** Dockerfile instructions of the image. */
  readonly changes: readonly string[];
}

const path = 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const certificates = '/etc/ssl/certs/ca-certificates.crt';
const recipes: Readonly<Record<BaseImage, Recipe>> = {
  'busybox:stable': { lay: (root) => layBusybox(root), changes: [path, 'CMD ["sh"]'] },
  'node:24-slim': {
    lay: layNode,
    changes: [
      path,
      `ENV NODE_EXTRA_CA_CERTS=${certificates}`,
      `ENV SSL_CERT_FILE=${certificates}`,
      'CMD ["node"]',
    ],
  },
};

/**
 * Where an image came from: it was present, was pulled from the hub, or was made from local
 * programs.
 */
export type Provided = 'present' | 'pulled' | 'made';

/**
 * Provides these images, under these names, on the engine. Pulls them where an image hub can be
 * reached, or makes them from this machine's programs. The hub is tried once a day; .tools/hub.json
 * keeps the result.
 * @throws when an image can neither be pulled nor made
 */
export async function ensureBaseImages(
  engine: Engine,
  images: readonly BaseImage[] = ['busybox:stable', 'node:24-slim'],
  log: (line: string) => void = () => undefined,
): Promise<Record<string, Provided>> {
  const provided: Record<string, Provided> = {};
  for (const image of images) provided[image] = await ensure(engine, image, log);
  return provided;
}

async function ensure(
  engine: Engine,
  image: BaseImage,
  log: (line: string) => void,
): Promise<Provided> {
  const inspected = await engine.docker(['image', 'inspect', '--format', '{{.Id}}', image], {
    mayFail: true,
  });
  if (inspected.code === 0) return 'present';
  if (await pull(engine, image, log)) return 'pulled';
  const started = Date.now();
  await make(engine, image, recipes[image]);
  log(`${image} made from this machine's own programs in ${Date.now() - started} ms`);
  return 'made';
}

const hubFile = join(toolsDir, 'hub.json');
const dayMs = 24 * 3600 * 1000;

/**
 * Tries the hub. The result counts for 24 hours, so that a machine without a hub does not wait in
 * each run.
 */
async function pull(
  engine: Engine,
  image: BaseImage,
  log: (line: string) => void,
): Promise<boolean> {
  if (!engine.outward) return false;
  const hub = await readHub();
  if (hub !== undefined && !hub.reachable && Date.now() - hub.at < dayMs) return false;
  try {
    // A small image shows within 8 s whether the hub answers. Only then is a long wait for a large
    // image worth it.
    if (hub?.reachable !== true)
      await engine.docker(['pull', '--quiet', 'busybox:stable'], { deadlineMs: 8_000 });
    await writeHub(true);
  } catch (error) {
    log(`image hub unreachable: ${messageWithCause(error).split('\n').at(-1)}`);
    await writeHub(false);
    return false;
  }
  try {
    await engine.docker(['pull', '--quiet', image], { deadlineMs: 180_000 });
    return true;
  } catch (error) {
    log(`${image} cannot be pulled: ${messageWithCause(error).split('\n').at(-1)}`);
    await writeHub(false);
    return false;
  }
}

async function readHub(): Promise<{ reachable: boolean; at: number } | undefined> {
  try {
    return JSON.parse(await readFile(hubFile, 'utf8')) as { reachable: boolean; at: number };
  } catch (error) {
    // The file does not exist yet, or a run was killed while it wrote the file: try the hub.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT' || error instanceof SyntaxError)
      return undefined;
    throw error;
  }
}

async function writeHub(reachable: boolean): Promise<void> {
  await writeFile(hubFile, JSON.stringify({ reachable, at: Date.now() }));
}

/** Creates the files in a temporary folder and streams them into `docker import`. */
async function make(engine: Engine, image: BaseImage, recipe: Recipe): Promise<void> {
  const root = await mkdtemp(join(tmpdir(), 'berth-base-'));
  try {
    await recipe.lay(root);
    const tar = spawn(
      'tar',
      ['--owner=0', '--group=0', '--numeric-owner', '-C', root, '-cf', '-', '.'],
      {
        env: childEnvironment(),
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    const changes = recipe.changes.flatMap((change) => ['--change', change]);
    const packed = once(tar, 'close');
    await engine.docker(['import', ...changes, '-', image], { input: tar.stdout });
    const [code] = (await packed) as [number | null];
    if (code !== 0) throw new Error(`tar ended with ${code} while ${image} was packed`);
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}
