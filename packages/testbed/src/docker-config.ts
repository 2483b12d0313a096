import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { toolsDir } from './config.ts';

/** Folder into which set-up puts the buildx plugin when the machine has none. */
export const pluginsDir = join(toolsDir, 'docker-plugins');

/**
 * Writes a separate docker client configuration into `dir` and returns that folder. The user's
 * ~/.docker is neither read (a context could point to another engine) nor written (`docker login`).
 */
export async function writeDockerConfig(dir: string): Promise<string> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const plugins = existsSync(join(pluginsDir, 'docker-buildx'))
    ? { cliPluginsExtraDirs: [pluginsDir] }
    : {};
  await writeFile(
    join(dir, 'config.json'),
    `${JSON.stringify({ auths: {}, ...plugins }, null, 2)}\n`,
    { mode: 0o600 },
  );
  return dir;
}
