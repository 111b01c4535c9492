RuleSet: Naming(name, id, address, text)
* name = "{name}"
* url = "https://cuvil.org/fhir/NamingSystem/{id}"
* version = "1.0.0"
* status = #active
* kind = #identifier
* date = "2026-12-01"
* description = "{text}"
* uniqueId.type = #uri
* uniqueId.value = "{address}"
* uniqueId.preferred = true

Instance: model-version
InstanceOf: NamingSystem
Usage: #definition
* insert Naming(ModelVersion, model-version, https://cuvil.org/fhir/NamingSystem/model-version, [[NAME|VERSION of a model version, unique within a manufacturer's registry.]])

Instance: release
InstanceOf: NamingSystem
Usage: #definition
* insert Naming(Release, release, https://cuvil.org/fhir/NamingSystem/release, [[SHA3-512 of a signed release statement, 128 hexadecimal digits.]])

Instance: sha3-512
InstanceOf: NamingSystem
Usage: #definition
* insert Naming(Sha3512, sha3-512, https://cuvil.org/fhir/NamingSystem/sha3-512, [[SHA3-512 (FIPS 202) of a file, 128 hexadecimal digits.]])

Instance: sha-256
InstanceOf: NamingSystem
Usage: #definition
* insert Naming(Sha256, sha-256, https://cuvil.org/fhir/NamingSystem/sha-256, [[SHA-256 (FIPS 180-4) of a file, 64 hexadecimal digits.]])

Instance: deployment
InstanceOf: NamingSystem
Usage: #definition
* insert Naming(Deployment, deployment, https://cuvil.org/fhir/NamingSystem/deployment, [[SHA3-512 of a signed deployment statement, 128 hexadecimal digits.]])

Instance: key
InstanceOf: NamingSystem
Usage: #definition
* insert Naming(Key, key, https://cuvil.org/fhir/NamingSystem/key, [[Id of a signing key: SHA-256 of its public key in DER (SubjectPublicKeyInfo), 64 hexadecimal digits.]])
