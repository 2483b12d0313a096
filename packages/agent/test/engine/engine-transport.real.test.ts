/** A real engine behind TLS, behind ssh, and while it hangs. */
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { createServer, type Server } from 'node:tls';
import { userInfo } from 'node:os';
import { makeCertificate } from '@berth/testbed/certificate';
import { findProgram } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { startProcess, untilReady } from '@berth/testbed/process';
import { newKeyPair, noSshd } from '@berth/testbed/ssh-git-server';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createDocker } from '../../src/engine/create-docker.ts';
import type { Docker } from '../../src/engine/docker.ts';
import { createEngineClient } from '../../src/engine/engine-client.ts';
import { createRegistryCredentials } from '../../src/engine/registry-credentials.ts';
import { never } from '../data/share.ts';
import { missingParts, type RealParts, startRealParts } from '../real-parts.ts';

const LABEL = { 'berth.project': 'transport' };

describe.skipIf(missingParts !== undefined)('an engine', () => {
  let parts: RealParts;
  let socket = '';
  beforeAll(async () => {
    parts = await startRealParts();
    socket = parts.engine.host.slice('unix://'.length);
    const command = ['sh', '-c', 'echo printed; sleep 99'];
    const labels = Object.entries(LABEL).flatMap(([name, value]) => [
      '--label',
      `${name}=${value}`,
    ]);
    await parts.engine.docker([
      'run',
      '-d',
      '--name',
      'far',
      ...labels,
      'busybox:stable',
      ...command,
    ]);
  }, 120_000);
  afterAll(async () => {
    await parts?.stop();
  }, 60_000);

  const dockerAt = (dockerHost: string, inherit: NodeJS.ProcessEnv): Docker => {
    const credentials = createRegistryCredentials({ configDir: join(parts.dir, 'docker') });
    const engine = createEngineClient({ dockerHost, inherit, credentials });
    return createDocker({ engine, credentials });
  };
  /** Reads, runs a command, follows events and makes changes. */
  async function useAll(docker: Docker): Promise<void> {
    expect((await docker.version(never)).version).toMatch(/^\d+\./);
    const [far] = await docker.list(LABEL);
    expect(far).toMatchObject({ name: 'far', state: 'running' });
    expect(await docker.lastLines('far', 5)).toEqual([{ stream: 'stdout', text: 'printed' }]);
    const options = { timeoutMs: 20_000, signal: never };
    expect(await docker.runInside('far', ['sh', '-c', 'echo in; exit 4'], options)).toEqual({
      ok: false,
      output: 'in\n',
      isLate: false,
    });
    const stop = new AbortController();
    const renamed = Promise.withResolvers<void>();
    const watching = docker
      .events(LABEL, (action) => (action === 'rename' ? renamed.resolve() : undefined), stop.signal)
      .catch((error: unknown) => error);
    // Renames until the stream of events has begun.
    const repeating = setInterval(() => void docker.rename('far', `far-${Date.now()}`), 300);
    await renamed.promise;
    clearInterval(repeating);
    stop.abort(new Error('enough'));
    expect(await watching).toMatchObject({ message: 'enough' });
    expect(await docker.rename(far?.id ?? '', 'far')).toBe(true);
    expect(await docker.rename('no-such', 'x')).toBe(false);
  }

  it('behind TLS knows the agent by its certificate, and the agent the engine', async () => {
    const folder = join(parts.dir, 'tls');
    await mkdir(folder);
    const { certFile, keyFile } = await makeCertificate(folder, 'engine', ['IP:127.0.0.1']);
    const [cert, key] = [await readFile(certFile), await readFile(keyFile)];
    await writeFile(join(folder, 'ca.pem'), cert);
    await writeFile(join(folder, 'cert.pem'), cert);
    await writeFile(join(folder, 'key.pem'), key);
    const server: Server = createServer(
      { cert, key, ca: cert, requestCert: true, rejectUnauthorized: true },
      (client) => {
        const engine = connect(socket);
        client.pipe(engine).pipe(client);
        client.on('error', () => engine.destroy());
        engine.on('error', () => client.destroy());
      },
    );
    const port = await freePort('127.0.0.1');
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    const env = { DOCKER_TLS_VERIFY: '1', DOCKER_CERT_PATH: folder };
    await useAll(dockerAt(`tcp://127.0.0.1:${port}`, env));
    // Another name than that of the certificate, and no certificate of the agent.
    await expect(dockerAt(`tcp://localhost:${port}`, env).version(never)).rejects.toMatchObject({
      code: 'engine_unavailable',
    });
    const plain = dockerAt(`tcp://127.0.0.1:${port}`, {});
    await expect(plain.version(never)).rejects.toMatchObject({ code: 'engine_unavailable' });
    server.close();
  }, 60_000);

  it.skipIf(noSshd !== '')(
    'behind ssh is reached as by the docker command',
    async () => {
      const folder = join(parts.dir, 'ssh');
      await mkdir(folder);
      if (process.getuid?.() === 0) await mkdir('/run/sshd', { recursive: true, mode: 0o755 });
      const [hostKey, own] = [
        await newKeyPair(join(folder, 'host')),
        await newKeyPair(join(folder, 'own')),
      ];
      await writeFile(join(folder, 'keys'), `${own.publicKey}\n`);
      const port = await freePort('127.0.0.1');
      const settings = [
        ...[`Port ${port}`, 'ListenAddress 127.0.0.1', `HostKey ${hostKey.path}`, 'PidFile none'],
        ...[`AuthorizedKeysFile ${join(folder, 'keys')}`, 'PermitRootLogin prohibit-password'],
        ...['PasswordAuthentication no', 'UsePAM no', 'StrictModes no'],
      ];
      await writeFile(join(folder, 'sshd_config'), `${settings.join('\n')}\n`);
      let output = '';
      const sshd = await startProcess(
        [findProgram('sshd') ?? '', '-D', '-e', '-f', join(folder, 'sshd_config')],
        { name: 'sshd', onOutput: (text) => (output += text) },
      );
      await untilReady(sshd, async () => output.includes('Server listening'), 10_000);
      // The operator’s ssh configuration, which names the key and the host.
      const bin = join(folder, 'bin');
      await mkdir(bin);
      const known = join(folder, 'known');
      await writeFile(known, `[127.0.0.1]:${port} ${hostKey.publicKey}\n`);
      const options = `-i ${own.path} -o UserKnownHostsFile=${known} -o IdentitiesOnly=yes -o BatchMode=yes`;
      const script = `#!/bin/sh\nexec ${findProgram('ssh')} -F none ${options} "$@"\n`;
      await writeFile(join(bin, 'ssh'), script);
      await chmod(join(bin, 'ssh'), 0o755);
      const inherit = { PATH: `${bin}:${process.env['PATH']}` };
      const user = userInfo().username;
      await useAll(dockerAt(`ssh://${user}@127.0.0.1:${port}${socket}`, inherit));
      const refused = dockerAt(`ssh://nobody-here@127.0.0.1:${port}${socket}`, inherit);
      await expect(refused.version(never)).rejects.toThrow(/Permission denied/);
      await sshd.stop();
      await expect(refused.version(never)).rejects.toMatchObject({ code: 'engine_unavailable' });
    },
    90_000,
  );

  it('that hangs ends each call at its deadline, and answers when it goes on', async () => {
    const docker = dockerAt(parts.engine.host, {});
    await docker.list(LABEL);
    const pid = parts.engine.faults?.daemonPid() ?? 0;
    process.kill(pid, 'SIGSTOP');
    try {
      const late = AbortSignal.timeout(500);
      await expect(docker.version(late)).rejects.toMatchObject({ name: 'TimeoutError' });
      const options = { timeoutMs: 500, signal: never };
      expect(await docker.runInside('far', ['true'], options)).toMatchObject({ isLate: true });
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    expect(await docker.list(LABEL)).toHaveLength(1);
  }, 60_000);
});
