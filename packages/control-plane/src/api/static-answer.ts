/**
 * An answer that is the same for everybody until the process ends. Anybody can request it as often
 * as they like, so its bytes, tag and compressed form are created only once.
 */
import { gzipSync } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { etagOf, matchesEtag } from './etag.ts';

export type StaticAnswer = { send(request: FastifyRequest, reply: FastifyReply): void };

/** `make` is called for the first request only. */
export function createStaticAnswer(type: string, make: () => string): StaticAnswer {
  let made: { plain: Buffer; zipped: Buffer; etag: string } | null = null;
  const once = () => {
    const text = make();
    const plain = Buffer.from(text);
    return { plain, zipped: gzipSync(plain), etag: etagOf(text) };
  };
  return {
    send(request, reply) {
      made ??= once();
      // Make the tag weak: a strong tag belongs to one encoding of the bytes.
      const etag = `W/${made.etag}`;
      void reply.headers({ etag, 'cache-control': 'no-cache', vary: 'accept-encoding' });
      if (matchesEtag(request.headers['if-none-match'], etag.slice(2)))
        return void reply.code(304).send();
      void reply.type(type);
      if (!acceptsGzip(request.headers['accept-encoding'])) return void reply.send(made.plain);
      void reply.header('content-encoding', 'gzip').send(made.zipped);
    },
  };
}

/** Returns whether Accept-Encoding allows gzip (RFC 9110 section 12.5.3). */
function acceptsGzip(accepted: string | string[] | undefined): boolean {
  const weight = /(?:^|[\s,])(?:gzip|x-gzip|\*)\s*(?:;\s*q=([\d.]+))?\s*(?:,|$)/i.exec(
    String(accepted ?? ''),
  );
  return weight !== null && Number(weight[1] ?? 1) > 0;
}
