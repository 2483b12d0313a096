import { existsSync } from 'node:fs';
import { findProgram, run } from './run.mjs';

/** Whether the engine the user has (DOCKER_HOST, the default socket) answers within 3 s. */
export async function engineAnswers() {
  const host = process.env.DOCKER_HOST || 'unix:///var/run/docker.sock';
  if (host.startsWith('unix://') && !existsSync(host.slice('unix://'.length))) return false;
  const docker = findProgram('docker');
  if (docker === undefined) return false;
  return (await run([docker, '--host', host, 'version', '--format', '{{.Server.Version}}'], { deadlineMs: 3_000 })).ok;
}

/** Why no engine of our own can be started here, or undefined. The namespaces and a cable are tried for real. */
export async function whyNoOwnEngine() {
  if (process.platform !== 'linux') return 'this is not Linux';
  if (process.getuid?.() !== 0) return 'starting one takes root';
  const missing = ['dockerd', 'containerd', 'docker', 'iptables', 'ip', 'unshare', 'nsenter', 'setpriv'].filter(
    (name) => findProgram(name) === undefined,
  );
  if (missing.length > 0) return `missing: ${missing.join(', ')}`;
  // Root in a container often may not do this.
  const tried = await run(
    ['unshare', '--net', '--mount', '--pid', '--fork', '--mount-proc', 'ip', 'link', 'add', 'bt0', 'type', 'veth', 'peer', 'name', 'bt1'],
    { deadlineMs: 5_000 },
  );
  return tried.ok ? undefined : `the kernel does not let us make namespaces: ${tried.output.trim()}`;
}
