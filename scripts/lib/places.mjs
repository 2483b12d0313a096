import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The repository's root. */
export const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
/** What set-up fetches; ignored by git. */
export const toolsDir = join(root, '.tools');
/** Node 24 and npm 11, laid out as an installed Node is. */
export const nodeDir = join(toolsDir, 'node');
export const nodeProgram = join(nodeDir, 'bin', 'node');
export const npmProgram = join(nodeDir, 'bin', 'npm');
/** docker's client plugins, named in the configuration the testbed writes (packages/testbed/src/docker-config.ts). */
export const pluginsDir = join(toolsDir, 'docker-plugins');
