/** Builds the dashboard, which takes about two seconds. */
import { join } from 'node:path';
import { root } from './places.mjs';
import { output } from './artefact/run.ts';

/** Returns the folder for DASHBOARD_DIR. */
export async function buildDashboard(): Promise<string> {
  const folder = join(root, '.berth', 'dashboard');
  const vite = join(root, 'node_modules', 'vite', 'bin', 'vite.js');
  await output([process.execPath, vite, 'build', join(root, 'packages', 'dashboard'), '--outDir', folder, '--logLevel', 'error']);
  return folder;
}
