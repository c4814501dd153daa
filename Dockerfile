# The server in an image without anything else: docker build -t headgate .
FROM golang:1.26 AS build
ARG VERSION=devel
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=${VERSION}" -o /out/headgate ./server/cmd/headgate && \
	mkdir -p /out/bin && ln -s /headgate /out/bin/ratelimit && \
	mkdir -p /out/etc/ssl/certs && cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/

FROM scratch
COPY --from=build /out/ /
# No user of the host, and none that owns anything in the image.
USER 65532:65532
# Within a container, loopback reaches nobody. The file system may be read-only.
ENV HEADGATE_LISTEN=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s CMD ["/headgate", "health"]
ENTRYPOINT ["/headgate"]
CMD ["serve"]
