import { existsSync } from 'node:fs';
import { findProgram, run } from './run.mjs';

/** Whether the user's engine (DOCKER_HOST, the default socket) answers within 3 s. */
export async function engineAnswers() {
  const host = process.env.DOCKER_HOST || 'unix:///var/run/docker.sock';
  if (host.startsWith('unix://') && !existsSync(host.slice('unix://'.length))) return false;
  const docker = findProgram('docker');
  if (docker === undefined) return false;
  return (
    await run([docker, '--host', host, 'version', '--format', '{{.Server.Version}}'], {
      deadlineMs: 3_000,
    })
  ).ok;
}

/**
 * Returns why a private engine cannot be started here, or undefined. Creates namespaces and a cable
 * to find out.
 */
export async function whyNoOwnEngine() {
  if (process.platform !== 'linux') return 'this is not Linux';
  if (process.getuid?.() !== 0) return 'root is needed to start one';
  const missing = [
    'dockerd',
    'containerd',
    'docker',
    'iptables',
    'ip',
    'unshare',
    'nsenter',
    'setpriv',
  ].filter((name) => findProgram(name) === undefined);
  if (missing.length > 0) return `missing: ${missing.join(', ')}`;
  // Root in a container often lacks this permission.
  const tried = await run(
    [
      'unshare',
      '--net',
      '--mount',
      '--pid',
      '--fork',
      '--mount-proc',
      'ip',
      'link',
      'add',
      'bt0',
      'type',
      'veth',
      'peer',
      'name',
      'bt1',
    ],
    { deadlineMs: 5_000 },
  );
  return tried.ok ? undefined : `the kernel refuses to create namespaces: ${tried.output.trim()}`;
}
