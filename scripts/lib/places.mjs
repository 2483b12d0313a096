import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Root folder of the repository. */
export const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
/** Folder of everything that set-up fetches; ignored by git. */
export const toolsDir = join(root, '.tools');
/** Folder of Node 24 and npm 11, with the layout of an installed Node. */
export const nodeDir = join(toolsDir, 'node');
export const nodeProgram = join(nodeDir, 'bin', 'node');
export const npmProgram = join(nodeDir, 'bin', 'npm');
/**
 * Folder of docker's client plugins, named in the configuration that the testbed writes
 * (packages/testbed/src/docker-config.ts).
 */
export const pluginsDir = join(toolsDir, 'docker-plugins');
