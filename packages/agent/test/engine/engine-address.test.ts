/** Addresses of the engine, as the docker command reads them. */
import { expect, it } from 'vitest';
import { engineAddress } from '../../src/engine/engine-address.ts';

const TLS = { ca: '/c/ca.pem', cert: '/c/cert.pem', key: '/c/key.pem' };
const VERIFY = { DOCKER_TLS_VERIFY: '1', DOCKER_CERT_PATH: '/c' };
const DIAL = ['docker', 'system', 'dial-stdio'];
const SSH = ['ssh', '-o', 'ConnectTimeout=30', '-T'];

it.each<[string | undefined, NodeJS.ProcessEnv, unknown]>([
  [undefined, {}, { kind: 'unix', path: '/var/run/docker.sock' }],
  ['unix:///run/user/1000/podman.sock', {}, { kind: 'unix', path: '/run/user/1000/podman.sock' }],
  ['tcp://10.0.0.5', {}, { kind: 'tcp', host: '10.0.0.5', port: 2375, tls: null }],
  ['10.0.0.5:4000', {}, { kind: 'tcp', host: '10.0.0.5', port: 4000, tls: null }],
  ['tcp://engine:80', VERIFY, { kind: 'tcp', host: 'engine', port: 80, tls: TLS }],
  ['tcp://[::1]', VERIFY, { kind: 'tcp', host: '::1', port: 2376, tls: TLS }],
  [
    'tcp://engine',
    { DOCKER_TLS_VERIFY: '' },
    { kind: 'tcp', host: 'engine', port: 2375, tls: null },
  ],
  ['ssh://me@host', {}, { kind: 'ssh', argv: [...SSH, '-l', 'me', '--', 'host', ...DIAL] }],
  [
    'ssh://host:2222/run/engine.sock',
    {},
    {
      kind: 'ssh',
      argv: [
        ...[...SSH, '-p', '2222', '--', 'host', 'docker', '--host', 'unix:///run/engine.sock'],
        ...['system', 'dial-stdio'],
      ],
    },
  ],
])('%s', (host, env, address) => expect(engineAddress(host, env, '/config')).toEqual(address));

it('certificates lie in the docker config folder without DOCKER_CERT_PATH', () => {
  expect(engineAddress('tcp://engine', { DOCKER_TLS_VERIFY: '1' }, '/config')).toMatchObject({
    tls: { ca: '/config/ca.pem' },
  });
});

it.each(['npipe:////./pipe/docker', 'tcp://a b'])('%s is no address', (host) => {
  expect(() => engineAddress(host, {}, '/config')).toThrow(`DOCKER_HOST is ${host}`);
});
