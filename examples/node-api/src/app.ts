import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Notes } from './notes.ts';

export interface AppOptions {
  readonly version: string;
  readonly greeting: string;
  readonly notes: Notes;
}

const longestBody = 16 * 1024;

export function createApp({ version, greeting, notes }: AppOptions) {
  return createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://app.invalid');
    switch (`${request.method} ${pathname}`) {
      case 'GET /':
        return json(response, 200, {
          greeting,
          version,
          user: request.headers['x-forwarded-user'] ?? null,
        });
      case 'GET /healthz':
        return json(response, 200, { status: 'ok' });
      case 'GET /version':
        return json(response, 200, { version });
      case 'GET /notes':
        return json(response, 200, { items: notes.list() });
      case 'POST /notes':
        return void addNote(request, response, notes);
      default:
        return json(response, 404, { error: 'not found' });
    }
  });
}

async function addNote(
  request: IncomingMessage,
  response: ServerResponse,
  notes: Notes,
): Promise<void> {
  let body = '';
  try {
    for await (const chunk of request) {
      body += chunk;
      if (body.length > longestBody) return json(response, 413, { error: 'too long' });
    }
    const { text } = JSON.parse(body) as { text?: unknown };
    if (typeof text !== 'string' || text === '')
      return json(response, 422, { error: 'text is missing' });
    json(response, 201, notes.add(text));
  } catch {
    json(response, 400, { error: 'not JSON' });
  }
}

function json(response: ServerResponse, status: number, body: object): void {
  response
    .writeHead(status, { 'content-type': 'application/json; charset=utf-8' })
    .end(`${JSON.stringify(body)}\n`);
}
