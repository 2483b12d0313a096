/** Builds the dashboard, which takes about two seconds. */
import { join } from 'node:path';
import { root } from './places.mjs';
import { output } from './artefact/run.ts';

/**
 * Returns the folder, for DASHBOARD_DIR. `config`: a file of settings for vite, instead of those of
 * the package. A test runner sets NODE_ENV=test, with which vite takes the development build of
 * React.
 */
export async function buildDashboard(
  folder = join(root, '.berth', 'dashboard'),
  config?: string,
): Promise<string> {
  const vite = join(root, 'node_modules', 'vite', 'bin', 'vite.js');
  const argv = [
    process.execPath,
    vite,
    'build',
    join(root, 'packages', 'dashboard'),
    '--outDir',
    folder,
    '--logLevel',
    'error',
  ];
  if (config !== undefined) argv.push('--config', config);
  await output(argv, { env: { ...process.env, NODE_ENV: 'production' } });
  return folder;
}
