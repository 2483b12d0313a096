// Shows Traefik's label provider the containers of Berth itself, and nothing else of the container engine. Who has the engine's socket is
// root on the machine, and even a client that may only read sees the environment of every container. So Traefik gets a socket of its own,
// behind which this program answers four requests: the version, the list, one container, the events. It shows only containers with the
// label berth.service and without berth.project. The agent sets berth.project on every container of a project, whatever labels its image
// has, so no project makes a router. Nothing is changed through this socket.
import { chmodSync, rmSync } from 'node:fs';
import { createServer, request } from 'node:http';

const {
  BERTH_ENGINE: ENGINE = '/run/engine.sock',
  BERTH_LABELS: SHOWN = '/run/berth-labels/labels.sock',
} = process.env;
const OWN = 'berth.service';
const OF_PROJECT = 'berth.project';
const MAX_BODY = 8 * 1024 * 1024;

const isShown = (labels) => labels?.[OWN] !== undefined && labels[OF_PROJECT] === undefined;
const filters = (value) => `?filters=${encodeURIComponent(JSON.stringify(value))}`;

/** Asks the engine. */
const ask = (path, onResponse, onError) =>
  request({ socketPath: ENGINE, path, method: 'GET', headers: { host: 'engine' } }, onResponse)
    .on('error', onError)
    .end();

/** @returns {Promise<{status: number, headers: import('node:http').IncomingHttpHeaders, body: string}>} */
const askWhole = (path) =>
  new Promise((resolve, reject) => {
    const asking = ask(
      path,
      (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (text) => {
          body += text;
          if (body.length > MAX_BODY)
            asking.destroy(new Error('the answer of the engine is too long'));
        });
        response
          .on('end', () =>
            resolve({ status: response.statusCode, headers: response.headers, body }),
          )
          .on('error', reject);
      },
      reject,
    );
    asking.setTimeout(10_000, () =>
      asking.destroy(new Error('the engine does not answer within 10 s')),
    );
  });

/**
 * What Traefik reads of one container. Its environment and its mounts are left out, and so is its health: Traefik would drop the routes to
 * a container whose health check is late, which happens on a busy machine.
 */
function view(container) {
  const { Id, Name, Created, State, Config, HostConfig, NetworkSettings } = container;
  return {
    ...{ Id, Name, Created },
    State: { Status: State?.Status, Running: State?.Running },
    Config: { Labels: Config?.Labels },
    HostConfig: { NetworkMode: HostConfig?.NetworkMode },
    NetworkSettings: { Ports: NetworkSettings?.Ports, Networks: NetworkSettings?.Networks },
  };
}

async function answer(path) {
  const [, version = '', name = ''] = /^(\/v[0-9.]+)?(\/[^?]*)/.exec(path) ?? [];
  if (name === '/_ping' || name === '/version') return askWhole(version + name);
  if (name === '/containers/json') {
    const found = await askWhole(`${version}${name}${filters({ label: [OWN] })}`);
    if (found.status !== 200) return found;
    const shown = JSON.parse(found.body).filter(({ Labels }) => isShown(Labels));
    return { ...found, body: JSON.stringify(shown) };
  }
  const [, id] = /^\/containers\/([0-9a-f]{64})\/json$/.exec(name) ?? [];
  if (id !== undefined) {
    const found = await askWhole(`${version}/containers/${id}/json`);
    if (found.status !== 200) return found;
    const container = JSON.parse(found.body);
    if (isShown(container.Config?.Labels))
      return { ...found, body: JSON.stringify(view(container)) };
    return { status: 404, headers: {}, body: '{"message":"no container of Berth"}' };
  }
  return { status: 403, headers: {}, body: '{"message":"not allowed here"}' };
}

const KEPT = ['api-version', 'docker-experimental', 'ostype', 'server', 'builder-version'];

const server = createServer((incoming, outgoing) => {
  const fail = (error) => {
    if (outgoing.headersSent) outgoing.destroy();
    else
      outgoing
        .writeHead(502, { 'content-type': 'application/json' })
        .end(JSON.stringify({ message: error.message }));
  };
  const { method, url = '/' } = incoming;
  if (method !== 'GET' && method !== 'HEAD') {
    outgoing
      .writeHead(403, { 'content-type': 'application/json' })
      .end('{"message":"not allowed here"}');
    return;
  }
  const events = /^(\/v[0-9.]+)?\/events(\?|$)/.exec(url);
  if (events !== null) {
    const path = `${events[1] ?? ''}/events${filters({ type: ['container'], label: [OWN] })}`;
    const asking = ask(
      path,
      (response) => {
        outgoing.writeHead(response.statusCode ?? 502, { 'content-type': 'application/json' });
        outgoing.flushHeaders();
        response.on('error', fail).pipe(outgoing);
      },
      fail,
    );
    outgoing.on('close', () => asking.destroy());
    return;
  }
  answer(url).then(({ status, headers, body }) => {
    const kept = KEPT.flatMap((name) =>
      headers[name] === undefined ? [] : [[name, headers[name]]],
    );
    const type = headers['content-type'] ?? 'application/json';
    outgoing.writeHead(status, {
      ...Object.fromEntries(kept),
      'content-type': type,
      'content-length': Buffer.byteLength(body),
    });
    outgoing.end(method === 'HEAD' ? undefined : body);
  }, fail);
});

if (process.argv[2] === '--check') {
  const checking = request({ socketPath: SHOWN, path: '/_ping' }, (response) => {
    process.exitCode = response.statusCode === 200 ? 0 : 1;
    response.resume();
  });
  checking.setTimeout(15_000, () => checking.destroy(new Error('no answer')));
  checking.on('error', () => (process.exitCode = 1)).end();
} else {
  // Left by a container that was killed.
  rmSync(SHOWN, { force: true });
  server.listen(SHOWN, () => {
    chmodSync(SHOWN, 0o600);
    console.log('labels of the containers of Berth are shown');
  });
  for (const signal of ['SIGTERM', 'SIGINT'])
    process.on(signal, () => {
      server.close();
      server.closeAllConnections();
    });
}
